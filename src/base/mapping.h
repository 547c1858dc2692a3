// Memory mapped from a file, or shared between processes of one host through a memfd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace sluice {

// Owns a mapping; unmaps it at the end. Movable; the address does not change.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* address, size_t bytes) : address_(static_cast<std::byte*>(address)), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return address_; }
  size_t size() const { return bytes_; }
  std::span<std::byte> bytes() const { return {address_, bytes_}; }

  // A whole file, read-only. An empty file is an error (there is nothing to map).
  static Result<Mapping> read_file(const std::string& path);

 private:
  std::byte* address_ = nullptr;
  size_t bytes_ = 0;
};

// Zeroed memory that other processes of this host can map. The owner keeps it alive for peers through
// `handle()` only until they have mapped it; a peer's mapping survives the owner's death.
class SharedMemory {
 public:
  static Result<SharedMemory> create(const std::string& name, size_t bytes);
  // Maps what another process (or this one) made. `handle` is what handle() returned there; it names process,
  // descriptor and size, and the size is checked.
  static Result<SharedMemory> open(const std::string& handle);

  std::byte* data() const { return mapping_.data(); }
  size_t size() const { return mapping_.size(); }
  std::string handle() const;

 private:
  UniqueFd fd_;
  Mapping mapping_;
};

}  // namespace sluice
