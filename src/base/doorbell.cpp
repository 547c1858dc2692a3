#include "base/doorbell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace sluice {

void Doorbell::ring() {
  // seq_cst on both sides: either the ringer sees the sleeper, or the sleeper sees the new count and does not
  // sleep.
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Doorbell::relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void Doorbell::yield() { sched_yield(); }

uint32_t Doorbell::begin_sleep() {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  return rings_.load(std::memory_order_seq_cst);
}

void Doorbell::sleep(uint32_t seen, Nanos at_most) {
  // A sleeper in a process that died without end_sleep() leaves its count behind: it costs a spurious wake,
  // no more.
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(at_most / seconds(1));
  timeout.tv_nsec = static_cast<long>(at_most % seconds(1));
  syscall(SYS_futex, &rings_, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void Doorbell::end_sleep() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }

}  // namespace sluice
