// Sluice's own exchange as a contestant: dispatch and combine of one rank's tokens, in rounds where they are
// more than the shape's. The experts' results are computed when verifying and only read when timing.
#pragma once

#include <memory>
#include <vector>

#include "bench/contestant.h"
#include "bench/settings.h"
#include "exchange/exchange.h"
#include "fabric/bootstrap.h"

namespace sluice::bench {

class ExchangeContestant final : public Contestant {
 public:
  // Collective: opens the fabric and the exchange.
  static Result<std::unique_ptr<ExchangeContestant>> open(const Settings& settings, int rank,
                                                          fabric::Bootstrap& bootstrap);
  Status verify() override;
  Result<Sample> run() override;
  fabric::Report report() const { return exchange_->report(); }

 private:
  ExchangeContestant(const Settings& settings, int rank, exchange::Placement placement,
                     std::unique_ptr<exchange::Exchange> exchange);

  // One layer's exchange. What is not dispatch is combine; with several rounds the two overlap.
  Status layer(bool verifying, Sample& sample);
  Status check(const exchange::Received& received, int first, int count);
  Status barrier();
  Deadline deadline() const { return Deadline::after(settings_.deadline); }

  const Settings settings_;
  const int rank_;
  const exchange::Placement placement_;
  const std::vector<int> experts_;  // the global numbers of the local ones
  std::unique_ptr<exchange::Exchange> exchange_;
  Tokens tokens_;
  std::vector<Tokens> all_;       // while verifying: every rank's, of the round
  std::vector<float> pair_rows_;  // (most pairs of a round, hidden)
  std::vector<float> out_;        // (tokens, hidden)
};

}  // namespace sluice::bench
