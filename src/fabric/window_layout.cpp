#include "fabric/window_layout.h"

#include <fmt/core.h>

#include "fabric/window.h"

namespace sluice::fabric {

namespace {

constexpr size_t kPackedAlignment = 128;              // two cache lines: the prefetcher fetches pairs
constexpr size_t kMostSlabBytes = size_t{1} << 40;    // a terabyte; keeps every sum below far from overflow
constexpr size_t kMostWindowBytes = size_t{1} << 46;  // what a process can map

constexpr size_t round_up(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

Result<WindowLayout> WindowLayout::make(int ranks, std::array<size_t, kKinds> slab_bytes, bool guard_pages) {
  bool large = guard_pages;
  for (size_t bytes : slab_bytes) {
    if (bytes > kMostSlabBytes) {
      return invalid_argument(
          fmt::format("a slab of {} bytes; at most {} are possible", bytes, kMostSlabBytes));
    }
    large = large || bytes + sizeof(SlabHeader) >= kPage;
  }
  const size_t alignment = large ? kPage : kPackedAlignment;
  WindowLayout layout;
  layout.ranks_ = ranks;
  layout.slab_bytes_ = slab_bytes;
  layout.blocks_ = round_up(layout.words(ranks), kPage);
  size_t at = round_up(sizeof(Mailbox), alignment);
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const size_t size = round_up(sizeof(SlabHeader) + slab_bytes[kind], alignment);
    for (size_t half = 0; half < kHalves; ++half) {
      if (guard_pages) {
        layout.guards_.push_back(at);
        at += kPage;
      }
      layout.slabs_[kind][half] = at;
      at += size;
      if (guard_pages) {
        layout.guards_.push_back(at);
        at += kPage;
      }
    }
  }
  layout.block_bytes_ = at;
  if (at > kMostWindowBytes / static_cast<size_t>(ranks)) {
    return invalid_argument(fmt::format(
        "a window of {} ranks x {} bytes exceeds the {} bytes that a process can map; use smaller "
        "slabs or fewer ranks",
        ranks, at, kMostWindowBytes));
  }
  return layout;
}

size_t WindowLayout::words(int source) const {
  return round_up(sizeof(WindowHeader), 64) + static_cast<size_t>(source) * sizeof(SourceWords);
}

}  // namespace sluice::fabric
