// Sends a reference's prompts through real engines, all at once and spread over the ranks, and collects what
// they compute.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "cli/judge.h"
#include "cli/reference.h"
#include "engine/local_ranks.h"

namespace sluice::cli {

class CheckRun {
 public:
  explicit CheckRun(const std::vector<ReferenceCase>& cases);
  ~CheckRun();

  // Loads the ranks, opens their exchange and runs all cases. An error when the engines could not run them;
  // cancelled when interrupt() was called.
  Status run(engine::RankSettings settings);
  // Ends run() early, cleanly; true when there is nothing yet to end, because the ranks are being loaded.
  bool interrupt();

  // After run(): by case.
  const std::vector<Observed>& observed() const { return observed_; }
  int rank_of(size_t index) const { return static_cast<int>(index) % ranks_; }
  const std::vector<fabric::Report>& reports() const { return reports_; }  // by rank
  const std::string& description() const { return description_; }          // of rank 0

 private:
  class Recorder;

  Status submit_all(engine::LocalRanks& ranks);
  Status submit(engine::Engine& engine, std::vector<int32_t> prompt, int max_tokens, engine::Sink sink);
  Status submit_prefixes(engine::Engine& engine, size_t index);
  void finish_one(const Status& status, size_t index);
  Status wait();

  const std::vector<ReferenceCase>& cases_;
  int ranks_ = 1;
  std::string description_;
  std::vector<Observed> observed_;
  std::vector<fabric::Report> reports_;
  std::vector<std::unique_ptr<Recorder>> recorders_;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t open_ = 0;  // requests
  bool loading_ = true;
  bool interrupted_ = false;
  Status broken_;
};

}  // namespace sluice::cli
