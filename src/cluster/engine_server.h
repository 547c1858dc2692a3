// Serves one engine to the fronts: the Engine service of proto/control.proto on a socket.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "engine/engine.h"

namespace sluice::cluster {

class EngineServer {
 public:
  // `engine` must outlive the server. `address` in gRPC's notation.
  static Result<std::unique_ptr<EngineServer>> start(engine::Engine& engine, const std::string& address);
  // Cancels the open requests and returns when their calls have ended.
  virtual ~EngineServer() = default;
};

}  // namespace sluice::cluster
