// The ranks of a test: threads of this process, each with its own Exchange over one network.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "fake_network.h"
#include "reference.h"

namespace sluice::exchange::test {

Shape make_shape(int ranks, int experts, int top_k, int hidden, int max_tokens, DType wire, bool exact);
std::string describe(const Shape& shape);

class Cluster {
 public:
  // Delivery and chaos follow `seed`. Nothing is opened when ranks is 1.
  explicit Cluster(const Shape& shape, uint64_t seed = 1, int delay_percent = 10);

  // Opens `rank`'s exchange; once for each.
  std::unique_ptr<Exchange> open(int rank);
  // Runs body(rank, exchange) for all ranks on threads of their own and waits for them.
  void run(const std::function<void(int rank, Exchange& exchange)>& body);

  FakeNetwork& network() { return *network_; }
  const Shape& shape() const { return shape_; }
  const Placement& placement() const { return placement_; }

 private:
  Shape shape_;
  Placement placement_;
  std::unique_ptr<FakeNetwork> network_;
};

// Applies this rank's experts to what arrived: (pairs, hidden), in the order of the Received.
std::vector<float> apply_experts(const Received& received, const Shape& shape, std::span<const int> experts);

struct Outcome {
  Status status;
  std::vector<float> out;
  StepFlags any;
};
// One dispatch and combine of `tokens` with the tests' experts.
Outcome exchange_once(Exchange& exchange, const Placement& placement, int rank, const Tokens& tokens,
                      DType x_type = DType::float32, int layer = 0, StepFlags flags = {},
                      Deadline deadline = Deadline::after(seconds(60)));

}  // namespace sluice::exchange::test
