// Where everything lies in a window. A pure function of shape, equal on all ranks:
//   page 0 ...  WindowHeader, then one SourceWords (a cache line) per source
//   then a block per source: its Mailbox, and its slabs [kind][half], each SlabHeader and payload
// Blocks and slabs start on pages; slabs smaller than a page are packed at 128 bytes instead, so that a
// thousand ranks fit one machine. A block holds all that one source ever writes: it can be registered, and
// revoked, alone.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "base/status.h"
#include "fabric/fabric.h"

namespace sluice::fabric {

class WindowLayout {
 public:
  // An error names the size that is too large.
  static Result<WindowLayout> make(int ranks, std::array<size_t, kKinds> slab_bytes, bool guard_pages);

  size_t bytes() const { return blocks_ + static_cast<size_t>(ranks_) * block_bytes_; }
  size_t words(int source) const;
  size_t block(int source) const { return blocks_ + static_cast<size_t>(source) * block_bytes_; }
  size_t block_bytes() const { return block_bytes_; }
  size_t slab(int source, Kind kind, int half) const { return block(source) + slab_in_block(kind, half); }
  size_t slab_in_block(Kind kind, int half) const {
    return slabs_[static_cast<size_t>(kind)][static_cast<size_t>(half)];
  }

  int ranks() const { return ranks_; }
  size_t slab_bytes(Kind kind) const { return slab_bytes_[static_cast<size_t>(kind)]; }
  // Offsets within a block of the pages that nobody may touch; empty without guard pages.
  const std::vector<size_t>& guards() const { return guards_; }

 private:
  int ranks_ = 0;
  std::array<size_t, kKinds> slab_bytes_{};
  size_t blocks_ = 0;
  size_t block_bytes_ = 0;
  std::array<std::array<size_t, kHalves>, kKinds> slabs_{};
  std::vector<size_t> guards_;
};

inline constexpr size_t kPage = 4096;

}  // namespace sluice::fabric
