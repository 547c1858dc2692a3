// EngineClient over gRPC: watches the coordinator, keeps a channel to every rank that has joined, and gives
// each request to the rank with the fewest of this front's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "cluster/engine_client.h"

namespace sluice::cluster {

class GrpcEngineClient : public EngineClient {
 public:
  struct Options {
    std::string coordinator;  // gRPC address
    // Called once, on the client's thread, when the coordinator has been out of reach for so long.
    Nanos orphan_timeout = seconds(30);
    std::function<void()> on_orphaned;
  };

  static std::unique_ptr<GrpcEngineClient> start(Options options);
  // Cancels what runs: when it returns, no sink is called any more.
  ~GrpcEngineClient() override = default;
};

}  // namespace sluice::cluster
