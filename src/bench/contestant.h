// One side of a race, as one rank sees it: something that can be verified and then timed, all ranks of a side
// together. A rank's process answers the orders of the command that started it, over a Unix socket, and
// between orders sleeps in a read, so that it costs the other side nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace sluice::bench {

// One repetition on one rank. begin and end are on the clock that all processes of a host share.
struct Sample {
  Nanos begin = 0;
  Nanos end = 0;
  Nanos dispatch = 0;  // spent in it
  Nanos combine = 0;
};

class Contestant {
 public:
  virtual ~Contestant() = default;
  // Collective, as run() is. Compares every byte of one repetition with what it must be.
  virtual Status verify() = 0;
  // A barrier, then one repetition.
  virtual Result<Sample> run() = 0;
};

// Orders are "verify NAME", "block NAME REPETITIONS", "report" and "end"; answers are JSON, {"error": ...}
// when something failed. Returns after "end", or with an error when the other side went away.
Status obey(int control, const std::map<std::string, Contestant*>& contestants,
            const std::function<nlohmann::json()>& report);

// Connects to the command that started this process and says who this is; gives the case's settings.
struct Introduction {
  UniqueFd control;
  std::string settings;
};
Result<Introduction> introduce(const std::string& socket, const std::string& side, int rank);

}  // namespace sluice::bench
