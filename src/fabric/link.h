// How this rank reaches one peer: the sending half of Fabric, for one kind of peer. Used by the caller
// thread; the counters may be read from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/fabric.h"

namespace sluice::fabric {

class Link {
 public:
  virtual ~Link() = default;

  virtual Result<std::span<std::byte>> outbox(Kind kind, uint64_t seq, Deadline deadline) = 0;
  virtual Status put(Kind kind, uint64_t seq, size_t bytes) = 0;
  virtual Status wake(uint64_t step) = 0;
  virtual bool local() const = 0;

  uint64_t puts_sent() const { return puts_sent_.load(std::memory_order_relaxed); }
  uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

 protected:
  void count_put(size_t payload_bytes) {
    puts_sent_.store(puts_sent() + 1, std::memory_order_relaxed);
    bytes_sent_.store(bytes_sent() + sizeof(SlabHeader) + payload_bytes, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> puts_sent_{0};
  std::atomic<uint64_t> bytes_sent_{0};
};

}  // namespace sluice::fabric
