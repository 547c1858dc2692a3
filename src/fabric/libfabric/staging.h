// Where network puts are built: for each peer a block laid out like its window's block for this rank, in
// registered memory, and words by which the proxy gives slabs back to the caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mapping.h"
#include "base/status.h"
#include "fabric/window.h"

namespace sluice::fabric::ofi {

// Shared between the caller, who takes a slab, and the proxy, which lets go of it.
struct alignas(64) PeerSlots {
  // 1 from put() until the provider has let go of all bytes of that put.
  std::atomic<uint32_t> busy[kKinds][kHalves];
  std::atomic<int> error;  // libfabric's, once the peer has failed
};

class Staging {
 public:
  static Result<Staging> create(const WindowLayout& layout);

  std::span<std::byte> memory() const { return memory_.bytes(); }
  std::byte* block(int peer) const {
    return memory_.data() + static_cast<size_t>(peer) * layout_.block_bytes();
  }
  SlabHeader* slab(int peer, Kind kind, int half) const {
    return reinterpret_cast<SlabHeader*>(block(peer) + layout_.slab_in_block(kind, half));
  }
  Mailbox* mailbox(int peer) const { return reinterpret_cast<Mailbox*>(block(peer)); }
  uint64_t offset(const void* address) const {
    return static_cast<uint64_t>(static_cast<const std::byte*>(address) - memory_.data());
  }
  PeerSlots& slots(int peer) { return slots_[static_cast<size_t>(peer)]; }
  const WindowLayout& layout() const { return layout_; }

 private:
  Staging(Mapping memory, const WindowLayout& layout)
      : memory_(std::move(memory)), layout_(layout), slots_(static_cast<size_t>(layout.ranks())) {}

  Mapping memory_;
  WindowLayout layout_;
  std::vector<PeerSlots> slots_;
};

}  // namespace sluice::fabric::ofi
