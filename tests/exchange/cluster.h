// The ranks of a test: threads of this process, each with its own Exchange over one network.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "exchange/exchange.h"
#include "fake_network.h"
#include "reference.h"

namespace sluice::exchange::test {

Shape make_shape(int ranks, int experts, int top_k, int hidden, int max_tokens, DType wire, bool exact);
std::string describe(const Shape& shape);

// What carries the puts: the tests' own network, which delivers in any order, or a real provider.
enum class Carrier { scrambled, local, tcp };
std::string_view carrier_name(Carrier carrier);

class Cluster {
 public:
  // The scrambled network follows `seed`. Nothing carries when ranks is 1.
  explicit Cluster(const Shape& shape, uint64_t seed = 1, Carrier carrier = Carrier::scrambled);

  // Opens `rank`'s exchange on the scrambled network; once for each.
  std::unique_ptr<Exchange> open(int rank);
  // Opens all ranks and runs body(rank, exchange) on a thread each; waits for them. May be called again.
  void run(const std::function<void(int rank, Exchange& exchange)>& body);

  FakeNetwork& network() { return *network_; }
  const Shape& shape() const { return shape_; }
  const Placement& placement() const { return placement_; }

 private:
  Result<std::unique_ptr<fabric::Fabric>> open_fabric(int rank, fabric::Bootstrap& bootstrap);

  Shape shape_;
  Placement placement_;
  Carrier carrier_;
  std::array<size_t, fabric::kKinds> slab_bytes_{};
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
