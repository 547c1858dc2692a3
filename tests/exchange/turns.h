// One rank as a state machine, so that one thread can drive many ranks by turns.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "exchange/exchange.h"
#include "reference.h"

namespace sluice::exchange::test {

// Goes through `exchanges` exchanges of drawn tokens: does whatever it can without waiting, in an order that
// the seed picks, with up to two exchanges under way, and compares each result bit for bit with the
// reference. Rank 0 says that it has work, and all must hear it.
class Turns {
 public:
  Turns(std::unique_ptr<Exchange> exchange, const Placement& placement, int rank, int exchanges,
        uint64_t seed);

  // False when it could only wait, or has failed: then status() is an error.
  bool turn();
  bool done() const { return collected_ == exchanges_; }
  const Status& status() const { return status_; }
  int most_under_way() const { return most_under_way_; }
  int collected() const { return collected_; }
  Exchange& exchange() { return *exchange_; }

 private:
  Status send();
  Status receive();
  Status answer();
  Status collect();

  std::unique_ptr<Exchange> exchange_;
  Placement placement_;
  const int rank_;
  const int exchanges_;
  std::mt19937_64 random_;
  std::deque<Tokens> batches_;
  std::deque<Received> arrived_;
  std::deque<std::vector<float>> results_;
  Status status_;
  int sent_ = 0;
  int received_ = 0;
  int answered_ = 0;
  int collected_ = 0;
  int most_under_way_ = 0;
};

}  // namespace sluice::exchange::test
