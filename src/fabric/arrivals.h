// The receiving side of network peers: takes the immediates of fragments that the provider says are in place,
// in any order, and publishes in the window's words what is whole. It is the only writer of those words.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "fabric/fragment_tracker.h"
#include "fabric/immediate.h"
#include "fabric/window.h"

namespace sluice::fabric {

class Arrivals {
 public:
  struct Event {
    enum What {
      nothing,
      published,   // a word of the window changed: ring the bell
      woken,       // the same, and wake number `number` of `source` wants its acknowledgement
      wake_acked,  // our wake number `number` was read by `source`
    } what = nothing;
    int source = 0;
    uint32_t number = 0;
  };

  Arrivals(Window& window, const Options& options);

  // The proxy thread only.
  Event deliver(uint32_t immediate);

  // Any thread.
  uint64_t stale() const { return stale_.load(std::memory_order_relaxed); }
  uint64_t duplicates() const { return duplicates_.load(std::memory_order_relaxed); }
  uint64_t malformed() const { return malformed_.load(std::memory_order_relaxed); }

 private:
  struct Inbound {
    FragmentTracker fragments;
    uint64_t next_seq = 0;  // what the protocol would send next; used when a header cannot be believed
  };
  struct Source {
    Inbound inbound[kKinds][kHalves];
    uint64_t puts = 0;
    uint64_t bytes = 0;
    uint64_t wake = 0;
  };

  Event fragment(const Immediate& it);
  Event control(const Immediate& it);
  void publish(int source, Kind kind, int half);
  static void count(std::atomic<uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

  Window& window_;
  int rank_;
  uint64_t epoch_;
  std::vector<Source> sources_;
  std::atomic<uint64_t> stale_{0};
  std::atomic<uint64_t> duplicates_{0};
  std::atomic<uint64_t> malformed_{0};
};

}  // namespace sluice::fabric
