// One case of `bench exchange`: verified first, then timed against what it is held to, block by block in
// turns within one call, so that both sides see the same machine.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/settings.h"

namespace sluice::bench {

struct RaceOptions {
  int blocks = 9;
  int repetitions = 0;  // of each side in all; 0: as many as make a block of a third of a second
  bool threads = false;
  std::string program;  // starts a rank: PROGRAM bench-rank --control SOCKET --rank N
  std::vector<std::string>
      mpi_command;  // starts the MPI side, to which --control SOCKET is added; empty: none
};

// The case's figures; times in microseconds, GB/s of hidden rows that leave a rank, mean over ranks.
//   exchange, mpi, raw, copies: {dispatch_us, combine_us, both_us: {p50, p99}, dispatch_gb_s, combine_gb_s}
//   ratio_to_mpi: our time / MPI's. ratio_to_raw, ratio_to_floor: their time / ours.
// Ratios are medians over blocks of the ratio of the blocks' median times.
Result<nlohmann::json> race(const Settings& settings, const RaceOptions& options);

}  // namespace sluice::bench
