#include "fabric/local/local_link.h"

#include "fabric/slab.h"
#include "fabric/wire.h"

namespace sluice::fabric {

Result<std::span<std::byte>> LocalLink::outbox(Kind kind, uint64_t seq, Deadline) {
  return std::span(peer_->payload(rank_, kind, half_of(seq)), peer_->layout().slab_bytes(kind));
}

Status LocalLink::put(Kind kind, uint64_t seq, size_t bytes) {
  const int half = half_of(seq);
  *peer_->slab(rank_, kind, half) = slab_header(rank_, epoch_, seq, bytes);
  count_put(bytes);
  SourceWords& words = peer_->words(rank_);
  words.puts.store(puts_sent(), std::memory_order_relaxed);
  words.bytes.store(bytes_sent(), std::memory_order_relaxed);
  words.arrival[static_cast<size_t>(kind)][half].store(arrival_word(seq, 1), std::memory_order_release);
  peer_->bell().ring();
  return {};
}

Status LocalLink::wake(uint64_t step) {
  SourceWords& words = peer_->words(rank_);
  if (words.wake.load(std::memory_order_relaxed) < step) {
    words.wake.store(step, std::memory_order_release);
    peer_->bell().ring();
  }
  return {};
}

}  // namespace sluice::fabric
