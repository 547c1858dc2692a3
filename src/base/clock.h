// Monotonic time in nanoseconds, and deadlines on it. Wall-clock time is used only in logs.
#pragma once

#include <chrono>
#include <cstdint>

namespace sluice {

using Nanos = int64_t;

inline Nanos now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr Nanos milliseconds(int64_t count) { return count * 1'000'000; }
constexpr Nanos seconds(int64_t count) { return count * 1'000'000'000; }

// A point in time after which a wait gives up. There is no "forever": every wait names its bound.
class Deadline {
 public:
  static Deadline at(Nanos when) { return Deadline(when); }
  static Deadline after(Nanos span) { return Deadline(now() + span); }

  bool expired() const { return now() >= when_; }
  Nanos remaining() const { return when_ - now(); }
  Nanos when() const { return when_; }

 private:
  explicit Deadline(Nanos when) : when_(when) {}
  Nanos when_;
};

}  // namespace sluice
