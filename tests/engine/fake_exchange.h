// Exchanges between ranks that are threads of a test, without a fabric: flags and steps only, rows stay at
// home. The hub can break an exchange at a chosen point, or break all of them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "exchange/exchange.h"

namespace sluice::engine {

class FakeHub {
 public:
  explicit FakeHub(int ranks);
  std::unique_ptr<exchange::Exchange> open(int rank, uint64_t epoch);

  // `rank`'s combine of exchange `seq` (from 0 in each epoch) fails, and with it everybody's next wait.
  void break_at(int rank, uint64_t seq);
  // Exchanges that `rank` has completed in its current epoch.
  uint64_t completed(int rank) const;
  // Calls of wake(), by all ranks in all epochs.
  int wakes() const;
  // Times that wait_for_step() slept until its deadline: a lost wake, when the deadline is long.
  int timeouts() const;

 private:
  friend class FakeExchange;
  struct Member {
    uint64_t epoch = 0;
    uint64_t dispatched = 0;  // exchanges
    uint64_t combined = 0;
    exchange::StepFlags flags[2]{};
    uint64_t woken = 0;
    bool nudged = false;
    bool ended = false;
    uint64_t break_at = UINT64_MAX;
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;
  int blamed_ = -1;
  int wakes_ = 0;
  int timeouts_ = 0;
};

}  // namespace sluice::engine
