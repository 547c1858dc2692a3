// The reference must see what a real exchange may get wrong: so real results are spoiled and shown to it.
#include "bench/workload.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace sluice::bench {
namespace {

exchange::Shape make_shape(DType wire, bool exact) {
  exchange::Shape shape;
  shape.ranks = 1;
  shape.experts = 12;
  shape.top_k = 3;
  shape.hidden = 40;
  shape.max_tokens = 9;
  shape.wire = wire;
  shape.exact = exact;
  return shape;
}

class OneRank : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  OneRank()
      : shape_(make_shape(std::get<0>(GetParam()), std::get<1>(GetParam()))),
        placement_(*exchange::Placement::contiguous(shape_.experts, 1)),
        exchange_(*exchange::Exchange::open(shape_, placement_, 0, 1, nullptr)),
        tokens_(make_tokens(shape_, 0, 9, Load::uniform, 3)),
        out_(static_cast<size_t>(9 * shape_.hidden)) {}

  Deadline soon() const { return Deadline::after(seconds(20)); }
  exchange::Received dispatch() {
    return *exchange_->dispatch(0, tokens_.matrix(), tokens_.experts, tokens_.weights, {}, soon());
  }
  const exchange::Shape& shape() const { return exchange_->shape(); }

  exchange::Shape shape_;
  exchange::Placement placement_;
  std::unique_ptr<exchange::Exchange> exchange_;
  Tokens tokens_;
  std::vector<float> out_;
};

TEST_P(OneRank, WhatTheExchangeGivesIsAcceptedAndEverySpoiltElementIsNot) {
  const exchange::Received received = dispatch();
  const Status right = check_received(shape(), placement_, 0, {tokens_}, received);
  EXPECT_TRUE(right.ok()) << right.message();
  std::vector<int> experts(12);
  for (int i = 0; i < 12; ++i) experts[static_cast<size_t>(i)] = i;
  std::vector<float> pair_rows(static_cast<size_t>(received.pairs() * shape_.hidden));
  apply_experts(received, shape().wire, shape_.hidden, experts, pair_rows.data());
  const ConstMatrix rows(pair_rows.data(), DType::float32, received.pairs(), shape_.hidden, shape_.hidden);
  const Matrix out{out_.data(), DType::float32, 9, shape_.hidden, shape_.hidden};
  ASSERT_TRUE(exchange_->combine(rows, out, soon()).ok());
  const Status combined = check_combined(shape(), placement_, tokens_, out_.data());
  EXPECT_TRUE(combined.ok()) << combined.message();
  for (float& value : out_) {
    const float good = value;
    value = std::nextafter(good, 1e30F);
    EXPECT_FALSE(check_combined(shape(), placement_, tokens_, out_.data()).ok());
    value = good;
  }
}

TEST_P(OneRank, AWrongRowOrCountIsRefused) {
  const exchange::Received received = dispatch();
  std::vector<const std::byte*> rows(received.rows.begin(), received.rows.end());
  std::vector<int32_t> offsets(received.expert_offsets.begin(), received.expert_offsets.end());
  const auto check = [&] {
    return check_received(shape(), placement_, 0, {tokens_}, {offsets, rows, received.any});
  };
  ASSERT_TRUE(check().ok());
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i] == rows[i - 1]) continue;
    std::swap(rows[i], rows[i - 1]);
    EXPECT_FALSE(check().ok()) << i;
    std::swap(rows[i], rows[i - 1]);
  }
  ++offsets[5];
  EXPECT_FALSE(check().ok());
}

INSTANTIATE_TEST_SUITE_P(Types, OneRank,
                         testing::Values(std::tuple(DType::float32, false), std::tuple(DType::float32, true),
                                         std::tuple(DType::bfloat16, true)));

TEST(Workload, TokensAreTheSameForWhoeverComputesThem) {
  const exchange::Shape shape = make_shape(DType::bfloat16, false);
  const Tokens once = make_tokens(shape, 2, 9, Load::skewed, 7);
  const Tokens again = make_tokens(shape, 2, 9, Load::skewed, 7);
  EXPECT_EQ(once.experts, again.experts);
  EXPECT_EQ(once.x, again.x);
  EXPECT_NE(once.x, make_tokens(shape, 1, 9, Load::skewed, 7).x);
}

TEST(Workload, ATokenNamesAnExpertOnce) {
  const exchange::Shape shape = make_shape(DType::float32, false);
  for (const Load load : {Load::uniform, Load::skewed, Load::one_expert}) {
    const Tokens tokens = make_tokens(shape, 0, 200, load, 1);
    for (int token = 0; token < 200; ++token) {
      std::set<int32_t> chosen;
      for (int k = 0; k < 3; ++k) {
        const int32_t expert = tokens.experts[static_cast<size_t>(token * 3 + k)];
        EXPECT_TRUE(expert >= 0 && expert < shape.experts);
        EXPECT_TRUE(chosen.insert(expert).second);
      }
      EXPECT_TRUE(load != Load::one_expert || chosen.count(0) == 1);
    }
  }
}

TEST(Workload, ExpertsHaveDifferentScales) {
  std::set<float> scales;
  for (int expert = 0; expert < 64; ++expert) scales.insert(expert_scale(expert));
  EXPECT_EQ(scales.size(), 64U);
}

}  // namespace
}  // namespace sluice::bench
