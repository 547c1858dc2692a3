// Memory of the CPU back end: zeroed, aligned to a cache line, in huge pages where it is large and the system
// has them (a matrix that is read once a step is otherwise slowed by address translation).
#pragma once

#include <cstddef>
#include <utility>

#include "base/status.h"
#include "compute/ops.h"

namespace sluice::compute::cpu {

constexpr size_t kAlignment = 64;

class Memory {
 public:
  Memory() = default;
  ~Memory() { release(); }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  static Result<Memory> allocate(size_t bytes);

  void* data() { return data_; }
  const void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void release();

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

class CpuBuffer : public Buffer {
 public:
  explicit CpuBuffer(Memory memory) : memory_(std::move(memory)) {}
  void* data() override { return memory_.data(); }
  const float* floats() const { return static_cast<const float*>(memory_.data()); }
  size_t bytes() const override { return memory_.bytes(); }

 private:
  Memory memory_;
};

// Scratch floats of one operation, kept from call to call. Contents do not survive a call of `get`.
class Scratch {
 public:
  // Throws std::bad_alloc: a step whose scratch does not fit can only stop the rank.
  float* get(size_t floats);

 private:
  Memory memory_;
};

}  // namespace sluice::compute::cpu
