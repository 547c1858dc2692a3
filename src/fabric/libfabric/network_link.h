// A peer on the network: a put is built in registered staging memory and ordered from an outlet.
#pragma once

#include "fabric/libfabric/staging.h"
#include "fabric/link.h"
#include "fabric/order.h"

namespace sluice::fabric::ofi {

// Who carries out a link's orders.
class Outlet {
 public:
  virtual ~Outlet() = default;
  // Waits for no peer.
  virtual void submit(const Order& order) = 0;
  virtual Staging& staging() = 0;
  // The caller is about to wait, or waits no more, for a staging slab.
  virtual void begin_wait() = 0;
  virtual void end_wait() = 0;
};

class NetworkLink final : public Link {
 public:
  NetworkLink(Fabric& fabric, Outlet& outlet, int peer) : fabric_(fabric), outlet_(outlet), peer_(peer) {}

  Result<std::span<std::byte>> outbox(Kind kind, uint64_t seq, Deadline deadline) override;
  Status put(Kind kind, uint64_t seq, size_t bytes) override;
  Status wake(uint64_t step) override;
  bool local() const override { return false; }

 private:
  Status check_alive();

  Fabric& fabric_;
  Outlet& outlet_;
  int peer_;
};

}  // namespace sluice::fabric::ofi
