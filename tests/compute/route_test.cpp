// The router's choice: against double precision, ties, and logits that are no numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "support.h"

namespace sluice::compute {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Choice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Choice route(const HostMatrix& logits, int top_k, bool normalise, int threads = 1) {
  const auto count = static_cast<size_t>(logits.rows * top_k);
  Choice choice{std::vector<int32_t>(count, -1), std::vector<float>(count)};
  make_backend(DType::float32, true, threads)
      ->route(logits.view(), top_k, normalise, choice.experts, choice.weights);
  return choice;
}

HostMatrix row_of(const std::vector<float>& values) {
  HostMatrix row(DType::float32, 1, static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) row.set(0, static_cast<int64_t>(i), values[i]);
  return row;
}

TEST(Route, MatchesDoublePrecision) {
  Random random(1);
  for (const int experts : {4, 8, 60, 128}) {
    for (const int top_k : {1, 2, 4}) {
      for (const bool normalise : {false, true}) {
        const HostMatrix logits = random_matrix(random, DType::float32, 40, experts, 3.0F);
        const Choice choice = route(logits, top_k, normalise, 2);
        for (int64_t r = 0; r < 40; ++r) {
          std::vector<std::pair<double, int>> order;
          double total = 0;
          for (int e = 0; e < experts; ++e) {
            order.emplace_back(-std::exp(static_cast<double>(logits.at(r, e))), e);
            total -= order.back().first;
          }
          std::sort(order.begin(), order.end());
          double chosen = 0;
          for (int k = 0; k < top_k; ++k) chosen -= order[static_cast<size_t>(k)].first;
          for (int k = 0; k < top_k; ++k) {
            const auto at = static_cast<size_t>(r * top_k + k);
            ASSERT_EQ(choice.experts[at], order[static_cast<size_t>(k)].second);
            const double exact = -order[static_cast<size_t>(k)].first / (normalise ? chosen : total);
            ASSERT_NEAR(static_cast<double>(choice.weights[at]), exact, 2e-6 * exact);
          }
        }
      }
    }
  }
}

TEST(Route, TiesGoToTheLowestIndex) {
  const Choice choice = route(row_of({1, 2, 0, 2, 1, 2}), 5, true);
  EXPECT_EQ(choice.experts, (std::vector<int32_t>{1, 3, 5, 0, 4}));
  const Choice all = route(row_of({0, 0, 0, 0}), 4, false);
  EXPECT_EQ(all.experts, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(all.weights, (std::vector<float>{0.25F, 0.25F, 0.25F, 0.25F}));
}

TEST(Route, GivesDistinctValidExpertsForLogitsThatAreNoNumbers) {
  const std::vector<std::vector<float>> rows = {{kNan, kNan, kNan, kNan, kNan},
                                                {1, kNan, 2, 3, 4},
                                                {kNan, 1, 2, 3, 4},
                                                {kInfinity, kInfinity, 0, 1, 2},
                                                {-kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity},
                                                {0, -kInfinity, 1, -kInfinity, 2}};
  for_each_instruction_set([&](const std::string&) {
    for (const auto& row : rows) {
      const Choice choice = route(row_of(row), 4, true);
      const std::set<int32_t> distinct(choice.experts.begin(), choice.experts.end());
      EXPECT_EQ(distinct.size(), 4U);
      for (const int32_t expert : choice.experts) EXPECT_TRUE(expert >= 0 && expert < 5) << expert;
    }
    EXPECT_TRUE(std::isnan(route(row_of(rows[1]), 4, true).weights[0]));
  });
}

TEST(Route, BitsAreTheSameUnderEveryInstructionSet) {
  Random random(2);
  const HostMatrix logits = random_matrix(random, DType::float32, 50, 100, 4.0F);
  Choice first;
  for_each_instruction_set([&](const std::string& name) {
    if (!has_fused_multiply_add(name)) return;
    for (const int threads : {1, 3}) {
      const Choice choice = route(logits, 8, true, threads);
      if (first.experts.empty()) first = choice;
      EXPECT_EQ(choice.experts, first.experts);
      EXPECT_EQ(choice.weights, first.weights);
    }
  });
}

TEST(Route, NoTokensIsNoWork) {
  EXPECT_TRUE(route(HostMatrix(DType::float32, 0, 8), 2, true).experts.empty());
}

}  // namespace
}  // namespace sluice::compute
