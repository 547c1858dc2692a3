// What a rank's process does besides computing: loads the rank, serves its engine to the fronts, joins the
// coordinator, and takes the engine from epoch to epoch as it is told.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "engine/rank.h"

namespace sluice::cluster {

struct RankProcessOptions {
  int rank = 0;
  std::string coordinator;             // gRPC address
  std::string address;                 // gRPC address that the Engine service shall have
  Nanos orphan_timeout = seconds(30);  // without a coordinator, before the process exits
};

using LoadRank = std::function<Result<std::unique_ptr<engine::Rank>>(engine::Callbacks)>;

// Until `stop_fd` is readable, the coordinator refuses the rank, or has been gone for too long. Returns the
// exit status (exit_status.h). Ends the process by itself when it is to stop while `load` or an epoch's
// opening hangs.
int run_rank(const RankProcessOptions& options, const LoadRank& load, int stop_fd);

}  // namespace sluice::cluster
