// A layer of any number of tokens in rounds of a few: the same bits as in one, on every carrier.
#include "exchange/rounds.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster.h"

namespace sluice::exchange::test {
namespace {

using testing::HasSubstr;

ConstMatrix rows_of(const std::vector<float>& values, int64_t rows, int hidden) {
  return {values.data(), DType::float32, rows, hidden, hidden};
}

struct LayerOutcome {
  Status status;
  std::vector<float> out;
  StepFlags any;
  int rounds = 0;
};

LayerOutcome run_layer(Exchange& exchange, const Placement& placement, int rank, const Tokens& tokens,
                       StepFlags flags = {}) {
  const int hidden = exchange.shape().hidden;
  LayerOutcome outcome;
  std::vector<float> pair_rows;
  const auto apply = [&](const Received& received) -> Result<ConstMatrix> {
    ++outcome.rounds;
    pair_rows = apply_experts(received, exchange.shape(), placement.experts_of(rank));
    return rows_of(pair_rows, received.pairs(), hidden);
  };
  outcome.out.assign(tokens.x.size(), -1.0F);
  const auto any = exchange_layer(exchange,
                                  {.layer = 3,
                                   .x = rows_of(tokens.x, tokens.count, hidden),
                                   .experts = tokens.experts,
                                   .weights = tokens.weights,
                                   .flags = flags},
                                  apply, Matrix{outcome.out.data(), DType::float32, tokens.count, hidden, hidden},
                                  Deadline::after(seconds(60)));
  outcome.status = any.status();
  if (any.ok()) outcome.any = *any;
  return outcome;
}

void expect_layers(const Shape& shape, Carrier carrier, const std::vector<std::vector<int>>& layers) {
  SCOPED_TRACE(fmt::format("{}, {}", describe(shape), carrier_name(carrier)));
  Cluster cluster(shape, 5, carrier);
  cluster.run([&](int rank, Exchange& exchange) {
    std::mt19937_64 random(static_cast<uint64_t>(rank) + 1);
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const std::vector<int>& counts = layers[layer];
      const int most = *std::max_element(counts.begin(), counts.end());
      const auto tokens = draw_tokens(random, shape, counts[static_cast<size_t>(rank)],
                                      static_cast<Load>(layer % 3));
      const auto outcome = run_layer(exchange, cluster.placement(), rank, tokens, {.has_work = rank == 1});
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      EXPECT_EQ(outcome.rounds, std::max(1, (most + shape.max_tokens - 1) / shape.max_tokens));
      EXPECT_TRUE(outcome.any.has_work || shape.ranks == 1);
      ASSERT_EQ(bits_of(outcome.out), bits_of(expected_result(shape, cluster.placement(), tokens)))
          << "rank " << rank << ", layer " << layer;
    }
  });
}

class RoundsTest : public testing::TestWithParam<Carrier> {};
INSTANTIATE_TEST_SUITE_P(Carriers, RoundsTest,
                         testing::Values(Carrier::scrambled, Carrier::local, Carrier::tcp),
                         [](const auto& info) { return std::string(carrier_name(info.param)); });

TEST_P(RoundsTest, AnyNumberOfTokensGivesTheReferencesBits) {
  for (const DType wire : {DType::float32, DType::bfloat16}) {
    for (const bool exact : {true, false}) {
      expect_layers(make_shape(3, 7, 2, 12, 4, wire, exact), GetParam(),
                    {{0, 0, 0}, {4, 4, 4}, {5, 0, 3}, {0, 17, 4}, {30, 1, 9}, {0, 0, 40}, {1, 1, 1}});
    }
  }
}

TEST(Rounds, ARankAloneHasThemToo) {
  Cluster cluster(make_shape(1, 5, 3, 8, 3, DType::bfloat16, false));
  auto exchange = cluster.open(0);
  std::mt19937_64 random(1);
  for (const int count : {0, 1, 3, 4, 10}) {
    const auto tokens = draw_tokens(random, exchange->shape(), count, Load::uniform);
    const auto outcome = run_layer(*exchange, cluster.placement(), 0, tokens);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_EQ(bits_of(outcome.out), bits_of(expected_result(exchange->shape(), cluster.placement(), tokens)));
  }
}

TEST(Rounds, UnequalSizesAreRefusedBeforeAnythingIsSent) {
  Cluster cluster(make_shape(1, 5, 3, 8, 3, DType::bfloat16, false));
  auto exchange = cluster.open(0);
  std::mt19937_64 random(1);
  auto tokens = draw_tokens(random, exchange->shape(), 5, Load::uniform);
  tokens.weights.pop_back();
  EXPECT_THAT(run_layer(*exchange, cluster.placement(), 0, tokens).status.message(), HasSubstr("weights"));
  tokens.weights.push_back(1.0F);
  EXPECT_TRUE(run_layer(*exchange, cluster.placement(), 0, tokens).status.ok());
}

TEST(Rounds, WhatTheExpertsRefuseEndsTheLayer) {
  Cluster cluster(make_shape(1, 5, 3, 8, 3, DType::bfloat16, false));
  auto exchange = cluster.open(0);
  const auto apply = [](const Received&) -> Result<ConstMatrix> { return internal_error("no room"); };
  const auto any = exchange_layer(*exchange, {.x = ConstMatrix(nullptr, DType::float32, 0, 8, 8), .experts = {}, .weights = {}, .flags = {}}, apply,
                                  Matrix{nullptr, DType::float32, 0, 8, 8}, Deadline::after(0));
  EXPECT_THAT(any.status().message(), HasSubstr("no room"));
}

}  // namespace
}  // namespace sluice::exchange::test
