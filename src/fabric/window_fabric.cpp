#include "fabric/window_fabric.h"

#include <fmt/core.h>

#include "fabric/slab.h"
#include "fabric/wire.h"

namespace sluice::fabric {

Status WindowFabric::check_peer(int peer) const {
  if (peer >= 0 && peer < ranks()) return {};
  return invalid_argument(
      fmt::format("rank {} does not exist; this fabric has ranks 0 to {}", peer, ranks() - 1));
}

Result<std::span<std::byte>> WindowFabric::outbox(int peer, Kind kind, uint64_t seq, Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(check_peer(peer));
  return links_[static_cast<size_t>(peer)]->outbox(kind, seq, deadline);
}

Status WindowFabric::put(int peer, Kind kind, uint64_t seq, size_t bytes) {
  SLUICE_RETURN_IF_ERROR(check_peer(peer));
  const size_t room = window_->layout().slab_bytes(kind);
  if (bytes > room) {
    return invalid_argument(
        fmt::format("a put of {} bytes to rank {}; a {} slab holds {}", bytes, peer, kind_name(kind), room));
  }
  return links_[static_cast<size_t>(peer)]->put(kind, seq, bytes);
}

bool WindowFabric::arrived(int source, Kind kind, uint64_t seq) const {
  const auto& word = window_->words(source).arrival[static_cast<size_t>(kind)][half_of(seq)];
  return has_arrived(word.load(std::memory_order_acquire), seq);
}

Result<std::span<const std::byte>> WindowFabric::inbox(int source, Kind kind, uint64_t seq) const {
  SLUICE_RETURN_IF_ERROR(check_peer(source));
  const int half = half_of(seq);
  const SlabHeader header = *window_->slab(source, kind, half);
  SLUICE_RETURN_IF_ERROR(
      check_slab_header(header, source, kind, epoch(), seq, window_->layout().slab_bytes(kind)));
  return std::span<const std::byte>(window_->payload(source, kind, half), header.bytes);
}

Status WindowFabric::wake(int peer, uint64_t step) {
  SLUICE_RETURN_IF_ERROR(check_peer(peer));
  return links_[static_cast<size_t>(peer)]->wake(step);
}

uint64_t WindowFabric::woken(int source) const {
  return window_->words(source).wake.load(std::memory_order_acquire);
}

Report WindowFabric::report() const {
  Report report = identity_;
  report.peers.reserve(links_.size());
  for (int peer = 0; peer < ranks(); ++peer) {
    const Link& link = *links_[static_cast<size_t>(peer)];
    const SourceWords& words = window_->words(peer);
    report.peers.push_back({.rank = peer,
                            .local = link.local(),
                            .puts_sent = link.puts_sent(),
                            .bytes_sent = link.bytes_sent(),
                            .puts_received = words.puts.load(std::memory_order_relaxed),
                            .bytes_received = words.bytes.load(std::memory_order_relaxed)});
  }
  return report;
}

}  // namespace sluice::fabric
