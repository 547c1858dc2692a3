// Which parts of one (source, kind, half) are complete, from fragments in any order. Parts are numbered on
// and on, modulo 64 on the wire; a part is complete when every one of its stripes is here, each in its own
// bit. So a duplicate changes nothing, however late (up to 32 parts), and no fragment is taken for the last.
#pragma once

#include <array>
#include <cstdint>

#include "fabric/immediate.h"

namespace sluice::fabric {

class FragmentTracker {
 public:
  enum class Mark {
    added,
    completed,  // completed() has grown
    duplicate,
    malformed,  // it contradicts another fragment of its part
  };

  Mark mark(uint32_t part, uint32_t stripe, uint32_t stripes) {
    const auto ahead = static_cast<uint32_t>((part - completed_) % kWindow);
    if (ahead >= kAhead) return Mark::duplicate;
    const auto all = static_cast<uint16_t>((1u << stripes) - 1);
    const auto bit = static_cast<uint16_t>(1u << stripe);
    Part& slot = parts_[part % kWindow];
    if (slot.all != 0 && slot.all != all) return Mark::malformed;
    if ((slot.here & bit) != 0) return Mark::duplicate;
    slot.all = all;
    slot.here = static_cast<uint16_t>(slot.here | bit);
    const uint64_t before = completed_;
    for (Part* next = &parts_[completed_ % kWindow]; next->all != 0 && next->here == next->all;
         next = &parts_[completed_ % kWindow]) {
      *next = {};
      ++completed_;
    }
    return completed_ == before ? Mark::added : Mark::completed;
  }

  // All parts below this number are complete. It only grows.
  uint64_t completed() const { return completed_; }

 private:
  static constexpr uint32_t kWindow = 64;
  static constexpr uint32_t kAhead = 32;  // so far ahead may a part be; anything else is one from the past

  struct Part {
    uint16_t here = 0;  // a bit a stripe
    uint16_t all = 0;   // what `here` must become; 0 before the first fragment
  };

  uint64_t completed_ = 0;
  std::array<Part, kWindow> parts_{};
};

}  // namespace sluice::fabric
