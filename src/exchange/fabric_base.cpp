// The parts of fabric::Fabric that need no provider, for builds without src/fabric's library.
#include "fabric/fabric.h"

namespace sluice::fabric {

void Fabric::end_epoch() {
  ended_.store(true, std::memory_order_release);
  doorbell().ring();
}

void Fabric::nudge() { doorbell().ring(); }

std::optional<int> Fabric::failed_peer() const {
  const int peer = failed_peer_.load(std::memory_order_acquire);
  return peer < 0 ? std::nullopt : std::optional(peer);
}

void Fabric::peer_failed(int peer) {
  int none = -1;
  failed_peer_.compare_exchange_strong(none, peer, std::memory_order_acq_rel);
  doorbell().ring();
}

}  // namespace sluice::fabric
