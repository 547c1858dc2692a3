// What the ranks settle before the first byte moves: that all mean the same epoch, shape and transport, and
// that every step of opening went well everywhere. Each error names the rank it is about.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "fabric/bootstrap.h"
#include "fabric/fabric.h"

namespace sluice::fabric {

// Refuses the first difference between any two ranks, with both values.
Status compare_ranks(const Options& options, const Report& report, Bootstrap& bootstrap, Deadline deadline);

// Gathers a text from each rank, or the error with which a rank failed: then all fail, naming it.
Result<std::vector<std::string>> gather_or_fail(Bootstrap& bootstrap, std::string_view name,
                                                Result<std::string> mine, int rank, Deadline deadline);
// The same with nothing to say: a barrier.
Status all_agree(Bootstrap& bootstrap, std::string_view name, const Status& mine, int rank,
                 Deadline deadline);

}  // namespace sluice::fabric
