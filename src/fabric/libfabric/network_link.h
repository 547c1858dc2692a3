// A peer on the network: a put is built in registered staging memory and ordered from the proxy.
#pragma once

#include "fabric/libfabric/proxy.h"
#include "fabric/link.h"

namespace sluice::fabric::ofi {

class NetworkLink final : public Link {
 public:
  NetworkLink(Fabric& fabric, Proxy& proxy, int peer) : fabric_(fabric), proxy_(proxy), peer_(peer) {}

  Result<std::span<std::byte>> outbox(Kind kind, uint64_t seq, Deadline deadline) override;
  Status put(Kind kind, uint64_t seq, size_t bytes) override;
  Status wake(uint64_t step) override;
  bool local() const override { return false; }

 private:
  Status check_alive();

  Fabric& fabric_;
  Proxy& proxy_;
  int peer_;
};

}  // namespace sluice::fabric::ofi
