// Which rows of a case go where, and how many bytes that is: what plain puts of the same bytes must carry,
// and what bandwidths are computed from. Computed from the tokens, without src/exchange.
#pragma once

#include <vector>

#include "bench/settings.h"
#include "bench/workload.h"

namespace sluice::bench {

// A row that arrives at an expert's rank: the pairs that it makes there, as positions among all pairs of the
// round grouped by expert.
using RowPairs = std::vector<int32_t>;

// One round of one rank.
struct RoundTraffic {
  int first_token = 0;
  int tokens = 0;
  std::vector<std::vector<int32_t>> sent;       // by destination: the tokens, ascending
  std::vector<std::vector<RowPairs>> received;  // by source
  int64_t pairs = 0;                            // that arrive here, own ones included
  // By peer: what a dispatch to it and the answer to it carry: rows, routing and weights; 0 for oneself.
  std::vector<size_t> dispatch_bytes;
  std::vector<size_t> combine_bytes;
};

std::vector<RoundTraffic> make_traffic(const Settings& settings, const exchange::Placement& placement,
                                       int rank);

// Of hidden rows that leave this rank for others, per repetition.
struct RemoteBytes {
  size_t dispatch = 0;
  size_t combine = 0;
};
RemoteBytes remote_bytes(const Settings& settings, const std::vector<RoundTraffic>& traffic, int rank);

}  // namespace sluice::bench
