// Bootstrap over TCP, for ranks that are processes of one host or of several: one BootstrapServer where the
// first rank's node is, one TcpBootstrap in every rank.
//
// A rank that goes away, comes twice, or was started for another number of ranks fails the meeting for all
// with one error that says so; a rank that never comes is named when the first deadline passes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/sockets.h"
#include "base/unique_fd.h"
#include "fabric/bootstrap.h"

namespace sluice::fabric {

class BootstrapServer {
 public:
  // Serves on a thread of its own until it is destroyed. `listener` is bound already, so that a port in use
  // is the caller's error before anything is started.
  BootstrapServer(UniqueFd listener, int ranks);
  ~BootstrapServer();

 private:
  UniqueFd stop_;
  std::thread thread_;
};

// Connects, and tries again until `deadline` while the server is not there yet.
Result<std::unique_ptr<Bootstrap>> connect_bootstrap(const std::string& host, uint16_t port, int rank,
                                                     int ranks, Deadline deadline);

}  // namespace sluice::fabric
