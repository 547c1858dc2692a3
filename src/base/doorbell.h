// A bell in shared memory: writers ring it after publishing, a waiter sleeps on it between looks at its
// condition. Works between threads and between processes that map the same page (futex). Ringing costs one
// atomic add, and a system call only when somebody sleeps. It carries no data and no count: a waiter always
// re-checks its condition.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace sluice {

class Doorbell {
 public:
  // After the condition has been made true with a release store.
  void ring();

  // Returns true as soon as ready() does, false once the deadline has passed. Spins for `spin`, then yields
  // for a few rounds, then sleeps. ready() must read what writers publish with acquire loads.
  template <class Ready>
  bool wait(Ready&& ready, Deadline deadline, Nanos spin = 2'000) {
    if (ready()) return true;
    const Nanos spin_until = now() + spin;
    while (now() < spin_until) {
      for (int i = 0; i < 16; ++i) {
        if (ready()) return true;
        relax();
      }
    }
    for (int i = 0; i < kYields; ++i) {
      if (ready()) return true;
      yield();
    }
    while (true) {
      const uint32_t seen = begin_sleep();
      if (ready()) {
        end_sleep();
        return true;
      }
      const Nanos remaining = deadline.remaining();
      if (remaining <= 0) {
        end_sleep();
        return false;
      }
      sleep(seen, remaining);
      end_sleep();
    }
  }

 private:
  static constexpr int kYields = 4;

  static void relax();
  static void yield();
  uint32_t begin_sleep();
  void sleep(uint32_t seen, Nanos at_most);
  void end_sleep();

  std::atomic<uint32_t> rings_{0};
  std::atomic<uint32_t> sleepers_{0};
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace sluice
