// What ranks agree on beyond the immediate: the magic of slabs and windows, and the word that says what has
// arrived. Any change here is a change of kWireVersion.
#pragma once

#include <cstdint>

namespace sluice::fabric {

inline constexpr int kWireVersion = 1;
inline constexpr uint32_t kSlabMagic = 0x42'4c'43'53;          // "SCLB"
inline constexpr uint64_t kWindowMagic = 0x574f444e4957'4353;  // "SCWINDOW"

// The immediate has 12 bits for the source.
inline constexpr int kMostRanks = 4096;
inline constexpr uint32_t kMostParts = 64;

// Exchanges from here on belong to the proof of transport at open(): no step ever counts that far, so their
// words never look like those of a real exchange.
inline constexpr uint64_t kProofSeq = uint64_t{1} << 56;

// The arrival word of one (source, kind, half): which exchange its slab belongs to and how many parts of it
// are there. 0 means that nothing has come. It is assigned by one writer and never incremented, so a
// duplicate changes nothing.
constexpr uint64_t arrival_word(uint64_t seq, uint32_t parts) { return ((seq + 1) << 7) | parts; }
constexpr bool has_arrived(uint64_t word, uint64_t seq) {
  return (word >> 7) == seq + 1 && (word & 127) != 0;
}

}  // namespace sluice::fabric
