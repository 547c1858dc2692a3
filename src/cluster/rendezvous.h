// The meetings at which the ranks of an epoch exchange small values (addresses, keys) before they have a
// fabric: a round is answered when every member has come to it, or fails for all of them when the epoch is
// given up or somebody's patience ends. Rounds of other epochs than the open one fail at once.
//
// Threads: none of its own; the caller locks. `Done` runs inside the calls and must not call back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cluster/engine_client.h"

namespace sluice::cluster {

class Rendezvous {
 public:
  // The members' values in the order of the members.
  using Done = std::function<void(Result<std::vector<std::string>>)>;

  struct Visit {
    EpochId epoch;
    int rank = 0;
    uint64_t round = 0;
    std::string name;  // of what is gathered, for errors
    std::string value;
    Nanos deadline = 0;
    Nanos patience = 0;  // what `deadline` was at first, for errors
  };

  void open(EpochId epoch, std::vector<int> members);
  // Fails every open round with `aborted` and refuses new ones, until the next open().
  void close(const std::string& reason);
  void visit(Visit visit, Done done);
  // Fails the rounds whose first deadline has passed, naming the ranks that have not come.
  void expire(Nanos time);
  std::optional<Nanos> next_deadline() const;

 private:
  struct Guest {
    Visit visit;
    Done done;
  };
  using Round = std::map<int, Guest>;  // by rank

  Status refusal(const Visit& visit) const;
  static void fail(Round round, const Status& why);

  bool open_ = false;
  EpochId epoch_;
  std::string closed_because_ = "no epoch has begun";
  std::vector<int> members_;
  std::map<uint64_t, Round> rounds_;
};

}  // namespace sluice::cluster
