// A queue of 32-byte descriptors from several producers to one consumer, in memory that both map: threads
// now, a GPU and the proxy in host-pinned memory later.
//
// A descriptor is four words of 63 bits. The top bit of each word as stored is the lap bit: it flips with
// every pass over the ring, so the consumer sees by the words themselves, each on its own, that all four are
// of this lap. Nothing has to be zeroed, no store order is needed between the words, and a descriptor is
// never seen half written. Indices are 64 bits and never wrap in practice; they would wrap correctly.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace sluice::fabric {

class DescriptorRing {
 public:
  using Words = std::array<uint64_t, 4>;  // each below 2^63
  static constexpr uint64_t kLapBit = uint64_t{1} << 63;

  static constexpr size_t memory_bytes(size_t depth) { return sizeof(Indices) + depth * sizeof(Slot); }

  // `memory`: memory_bytes(depth) bytes on a 64-byte boundary that outlive the ring. `depth` is a power of
  // two. `start` is the first index (tests start near the wrap).
  DescriptorRing(void* memory, size_t depth, uint64_t start = 0)
      : indices_(new (memory) Indices), slots_(reinterpret_cast<Slot*>(indices_ + 1)), depth_(depth) {
    for (uint64_t i = 0; i < depth; ++i) {
      Slot* slot = new (&slots_[(start + i) & (depth - 1)]) Slot;
      // What the previous lap would have left.
      for (auto& word : slot->words) word.store(lap_bit(start + i) ^ kLapBit, std::memory_order_relaxed);
    }
    indices_->tail.store(start, std::memory_order_relaxed);
    indices_->head.store(start, std::memory_order_release);
  }

  size_t depth() const { return depth_; }

  // Any thread. False when the ring is full.
  bool try_push(const Words& words) {
    uint64_t tail = indices_->tail.load(std::memory_order_relaxed);
    while (true) {
      // Acquire: the consumer has read what the slot held before.
      if (tail - indices_->head.load(std::memory_order_acquire) >= depth_) {
        const uint64_t again = indices_->tail.load(std::memory_order_relaxed);
        if (again == tail) return false;
        tail = again;  // it had moved on, so the comparison meant nothing
        continue;
      }
      if (indices_->tail.compare_exchange_weak(tail, tail + 1, std::memory_order_relaxed)) break;
    }
    Slot& slot = slots_[tail & (depth_ - 1)];
    const uint64_t lap = lap_bit(tail);
    for (size_t i = 0; i < words.size(); ++i) slot.words[i].store(words[i] | lap, std::memory_order_release);
    return true;
  }

  // The consumer only. False when the next descriptor is not there, or not whole yet.
  bool try_pop(Words& words) {
    const uint64_t head = indices_->head.load(std::memory_order_relaxed);
    const Slot& slot = slots_[head & (depth_ - 1)];
    const uint64_t lap = lap_bit(head);
    for (size_t i = 0; i < words.size(); ++i) {
      const uint64_t word = slot.words[i].load(std::memory_order_acquire);
      if ((word & kLapBit) != lap) return false;
      words[i] = word & ~kLapBit;
    }
    indices_->head.store(head + 1, std::memory_order_release);
    return true;
  }

  // The consumer only: whether some producer has claimed a slot that was not popped.
  bool empty() const {
    return indices_->head.load(std::memory_order_relaxed) == indices_->tail.load(std::memory_order_acquire);
  }

 private:
  struct alignas(32) Slot {
    std::array<std::atomic<uint64_t>, 4> words;
  };
  struct Indices {
    alignas(64) std::atomic<uint64_t> tail;  // next to claim, by producers
    alignas(64) std::atomic<uint64_t> head;  // next to pop, by the consumer
  };
  static_assert(sizeof(Slot) == 32);
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  // Set in even laps, so that zeroed memory holds nothing. Index 2^64 - 1 is in an odd lap: the wrap is one
  // more flip.
  uint64_t lap_bit(uint64_t index) const { return (index / depth_) % 2 == 0 ? kLapBit : 0; }

  Indices* indices_;
  Slot* slots_;
  size_t depth_;
};

}  // namespace sluice::fabric
