#include "fabric/libfabric/network_link.h"

#include <fmt/core.h>

#include "fabric/libfabric/provider.h"
#include "fabric/slab.h"

namespace sluice::fabric::ofi {

Status NetworkLink::check_alive() {
  const int error = outlet_.staging().slots(peer_).error.load(std::memory_order_acquire);
  if (error == 0) return {};
  return unavailable(fmt::format("rank {} is gone: {}", peer_, error_text(error)));
}

Result<std::span<std::byte>> NetworkLink::outbox(Kind kind, uint64_t seq, Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(check_alive());
  const int half = half_of(seq);
  const auto& busy = outlet_.staging().slots(peer_).busy[static_cast<size_t>(kind)][half];
  if (busy.load(std::memory_order_acquire) != 0) {
    outlet_.begin_wait();
    const Wait waited = fabric_.wait([&] { return busy.load(std::memory_order_seq_cst) == 0; }, deadline);
    outlet_.end_wait();
    if (waited == Wait::ended) return aborted("the epoch ended");
    if (waited == Wait::peer_failed) {
      SLUICE_RETURN_IF_ERROR(check_alive());
      return unavailable(fmt::format("rank {} is gone", fabric_.failed_peer().value_or(-1)));
    }
    if (waited == Wait::late) {
      return Status(Code::deadline_exceeded,
                    fmt::format("the network still holds the bytes of {} {} to rank {}", kind_name(kind),
                                seq - 2, peer_));
    }
  }
  std::byte* payload = reinterpret_cast<std::byte*>(outlet_.staging().slab(peer_, kind, half) + 1);
  return std::span(payload, outlet_.staging().layout().slab_bytes(kind));
}

Status NetworkLink::put(Kind kind, uint64_t seq, size_t bytes) {
  SLUICE_RETURN_IF_ERROR(check_alive());
  const int half = half_of(seq);
  Staging& staging = outlet_.staging();
  if (staging.slots(peer_).busy[static_cast<size_t>(kind)][half].exchange(1, std::memory_order_acq_rel) !=
      0) {
    return internal_error(
        fmt::format("{} {} to rank {} was put without outbox()", kind_name(kind), seq, peer_));
  }
  SlabHeader* slab = staging.slab(peer_, kind, half);
  *slab = slab_header(fabric_.rank(), fabric_.epoch(), seq, bytes);
  count_put(bytes);
  outlet_.submit({.op = Order::put,
                  .kind = kind,
                  .half = half,
                  .peer = peer_,
                  .offset = staging.offset(slab),
                  .bytes = sizeof(SlabHeader) + bytes,
                  .value = seq});
  return {};
}

Status NetworkLink::wake(uint64_t step) {
  SLUICE_RETURN_IF_ERROR(check_alive());
  outlet_.submit({.op = Order::wake, .peer = peer_, .value = step});
  return {};
}

}  // namespace sluice::fabric::ofi
