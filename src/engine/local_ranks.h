// All ranks of a group as threads of this process: for commands and tests that need no rank processes.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/rank.h"
#include "fabric/bootstrap.h"

namespace sluice::engine {

class LocalRanks {
 public:
  // Loads settings.ranks ranks, at the same time; settings.rank is not looked at.
  static Result<std::unique_ptr<LocalRanks>> load(const RankSettings& settings);
  // Leaves the epoch on all ranks at once, then ends them.
  ~LocalRanks();

  // Opens the ranks' exchanges and returns when every rank has committed the epoch's first step, or with the
  // reason why one could not. An earlier epoch must have been left.
  Status enter_epoch(uint64_t epoch);
  void leave_epoch();
  // Called once when an epoch breaks, from an engine's thread. Set before enter_epoch().
  void on_broken(std::function<void(const Status&)> callback) { on_broken_ = std::move(callback); }

  int ranks() const { return static_cast<int>(ranks_.size()); }
  Rank& rank(int index) { return *ranks_[static_cast<size_t>(index)]; }
  Engine& engine(int index) { return rank(index).engine(); }

 private:
  explicit LocalRanks(int ranks) : ranks_(static_cast<size_t>(ranks)) {}
  Callbacks callbacks(int rank);
  void broken(int rank, const exchange::Blame& blame, const Status& why);

  std::function<void(const Status&)> on_broken_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int ready_ = 0;
  Status broken_;
  std::unique_ptr<fabric::InProcessHub> hub_;  // of the current epoch
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace sluice::engine
