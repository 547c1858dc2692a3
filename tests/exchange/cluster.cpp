#include "cluster.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <thread>

namespace sluice::exchange::test {

Shape make_shape(int ranks, int experts, int top_k, int hidden, int max_tokens, DType wire, bool exact) {
  Shape shape;
  shape.ranks = ranks;
  shape.experts = experts;
  shape.top_k = top_k;
  shape.hidden = hidden;
  shape.max_tokens = max_tokens;
  shape.wire = wire;
  shape.exact = exact;
  return shape;
}

std::string describe(const Shape& shape) {
  return fmt::format("{} ranks, {} experts, top-{}, hidden {}, {} tokens, {}, {}", shape.ranks, shape.experts,
                     shape.top_k, shape.hidden, shape.max_tokens, dtype_name(shape.wire),
                     shape.exact ? "exact" : "reduced");
}

std::string_view carrier_name(Carrier carrier) {
  switch (carrier) {
    case Carrier::scrambled:
      return "scrambled";
    case Carrier::local:
      return "local";
    case Carrier::tcp:
      return "tcp";
  }
  return "";
}

Cluster::Cluster(const Shape& shape, uint64_t seed, Carrier carrier)
    : shape_(shape),
      placement_(Placement::contiguous(shape.experts, shape.ranks).value()),
      carrier_(carrier) {
  const auto needs = plan(shape, placement_);
  EXPECT_TRUE(needs.ok()) << needs.status().message();
  slab_bytes_ = {needs->dispatch_slab_bytes, needs->combine_slab_bytes};
  if (shape.ranks == 1 || carrier != Carrier::scrambled) return;
  FakeOptions options;
  options.ranks = shape.ranks;
  options.slab_bytes = slab_bytes_;
  options.seed = seed;
  network_ = std::make_unique<FakeNetwork>(options);
}

std::unique_ptr<Exchange> Cluster::open(int rank) {
  auto exchange = Exchange::open(shape_, placement_, rank, 1, network_ ? network_->join(rank) : nullptr);
  EXPECT_TRUE(exchange.ok()) << exchange.status().message();
  return std::move(exchange).value();
}

Result<std::unique_ptr<fabric::Fabric>> Cluster::open_fabric(int rank, fabric::Bootstrap& bootstrap) {
  if (shape_.ranks == 1) return std::unique_ptr<fabric::Fabric>();
  if (network_) return network_->join(rank);
  fabric::Options options;
  options.provider = carrier_name(carrier_);
  options.rank = rank;
  options.ranks = shape_.ranks;
  options.epoch = 1;
  options.slab_bytes = slab_bytes_;
  options.proof_bytes = 0;
  options.connect_timeout = seconds(120);
  options.stripe_bytes = 1024;
  options.guard_pages = true;
  return fabric::Fabric::open(options, bootstrap);
}

void Cluster::run(const std::function<void(int rank, Exchange& exchange)>& body) {
  fabric::InProcessHub hub(shape_.ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto bootstrap = hub.join(rank);
      auto fabric = open_fabric(rank, *bootstrap);
      ASSERT_TRUE(fabric.ok()) << fabric.status().message();
      auto exchange = Exchange::open(shape_, placement_, rank, 1, std::move(fabric).value());
      ASSERT_TRUE(exchange.ok()) << exchange.status().message();
      // Nobody starts before all have joined, nor leaves before all are done.
      ASSERT_TRUE(bootstrap->all_gather("start", "", Deadline::after(seconds(60))).ok());
      body(rank, **exchange);
      ASSERT_TRUE(bootstrap->all_gather("end", "", Deadline::after(seconds(60))).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> apply_experts(const Received& received, const Shape& shape, std::span<const int> experts) {
  const auto hidden = static_cast<size_t>(shape.hidden);
  std::vector<float> result(received.rows.size() * hidden);
  std::vector<float> x(hidden);
  for (size_t local = 0; local < experts.size(); ++local) {
    for (int32_t pair = received.expert_offsets[local]; pair < received.expert_offsets[local + 1]; ++pair) {
      const std::byte* row = received.rows[static_cast<size_t>(pair)];
      for (size_t i = 0; i < hidden; ++i) {
        x[i] = shape.wire == DType::bfloat16 ? bfloat16_to_float(reinterpret_cast<const uint16_t*>(row)[i])
                                             : reinterpret_cast<const float*>(row)[i];
      }
      apply_expert(experts[local], x.data(), result.data() + static_cast<size_t>(pair) * hidden,
                   shape.hidden);
    }
  }
  return result;
}

Outcome exchange_once(Exchange& exchange, const Placement& placement, int rank, const Tokens& tokens,
                      DType x_type, int layer, StepFlags flags, Deadline deadline) {
  const Shape& shape = exchange.shape();
  const int hidden = shape.hidden;
  std::vector<uint16_t> narrow;
  const void* x = tokens.x.data();
  if (x_type == DType::bfloat16) {
    for (const float value : tokens.x) narrow.push_back(float_to_bfloat16(value));
    x = narrow.data();
  }
  Outcome outcome;
  const auto received = exchange.dispatch(layer, ConstMatrix(x, x_type, tokens.count, hidden, hidden),
                                          tokens.experts, tokens.weights, flags, deadline);
  if (!received.ok()) return {received.status(), {}, {}};
  outcome.any = received->any;
  const auto rows = apply_experts(*received, shape, placement.experts_of(rank));
  outcome.out.resize(tokens.x.size());
  outcome.status =
      exchange.combine(ConstMatrix(rows.data(), DType::float32, received->pairs(), hidden, hidden),
                       Matrix{outcome.out.data(), DType::float32, tokens.count, hidden, hidden}, deadline);
  return outcome;
}

}  // namespace sluice::exchange::test
