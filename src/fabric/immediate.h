// The 32 bits that travel with a fragment and name it, whatever order it arrives in:
//   kind 2 | generation 3 | source 12 | half 1 | part 6 | stripe 4 | stripes-1 4
// Pure functions; part of the wire version.
#pragma once

#include <cstdint>
#include <optional>

namespace sluice::fabric {

enum class FragmentKind : uint8_t {
  dispatch = 0,
  combine = 1,
  control = 2,  // half 0: a wake lies in the mailbox; half 1: the wake numbered `part` was read
  fenced = 3,   // reserved for fenced signals
};

struct Immediate {
  FragmentKind kind = FragmentKind::dispatch;
  uint32_t generation = 0;  // lowest 3 bits of the epoch
  uint32_t source = 0;
  uint32_t half = 0;
  uint32_t part = 0;  // the source's running number of parts of this (kind, half), modulo 64
  uint32_t stripe = 0;
  uint32_t stripes = 1;  // 1 to 16

  bool operator==(const Immediate&) const = default;
};

inline constexpr uint32_t kMostStripes = 16;

// Nothing when a field does not fit its bits: a value that wraps unnoticed would name another fragment.
constexpr std::optional<uint32_t> encode_immediate(const Immediate& it) {
  const auto kind = static_cast<uint32_t>(it.kind);
  if (kind > 3 || it.generation > 7 || it.source > 4095 || it.half > 1 || it.part > 63) return std::nullopt;
  if (it.stripes < 1 || it.stripes > kMostStripes || it.stripe >= it.stripes) return std::nullopt;
  return kind << 30 | it.generation << 27 | it.source << 15 | it.half << 14 | it.part << 8 | it.stripe << 4 |
         (it.stripes - 1);
}

// Nothing when the bits are impossible (a stripe beyond the last one).
constexpr std::optional<Immediate> decode_immediate(uint32_t bits) {
  const Immediate it{.kind = static_cast<FragmentKind>(bits >> 30),
                     .generation = bits >> 27 & 7,
                     .source = bits >> 15 & 4095,
                     .half = bits >> 14 & 1,
                     .part = bits >> 8 & 63,
                     .stripe = bits >> 4 & 15,
                     .stripes = (bits & 15) + 1};
  if (it.stripe >= it.stripes) return std::nullopt;
  return it;
}

}  // namespace sluice::fabric
