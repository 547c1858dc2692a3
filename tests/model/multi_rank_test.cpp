// The forward pass over several ranks, some of them without tokens.
#include <gtest/gtest.h>

#include "rank_team.h"
#include "single_rank.h"
#include "support/oracle.h"

namespace sluice::test {
namespace {

constexpr double kBfloat16Tolerance = 2e-2;
constexpr double kFloat32Tolerance = 1e-4;

std::unique_ptr<compute::Backend> cpu(const compute::Options& options) {
  return value_or_throw(compute::make_cpu_backend(options));
}

std::string fp8_directory() { return *oracle_directory("qwen3-moe-a-fp8"); }

// Work for `ranks` ranks, all of it on `busy`.
std::vector<RankTeam::Work> work_on(int busy, int ranks, std::vector<std::vector<int32_t>> prompts) {
  std::vector<RankTeam::Work> work(static_cast<size_t>(ranks));
  work[static_cast<size_t>(busy)].prompts = std::move(prompts);
  return work;
}

class Ranks : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Activations, Ranks, testing::Values(DType::float32, DType::bfloat16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(Ranks, AnyNumberGivesTheSameBitsWhenExact) {
  const auto cases = read_oracle(fp8_directory());
  std::vector<std::vector<float>> expected;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    RankTeam team(fp8_directory(), ranks, {.activations = GetParam(), .deterministic = true}, cpu);
    for (size_t i = 0; i < cases.size(); ++i) {
      // The last rank computes, the others only serve their experts.
      const auto results = team.step(work_on(ranks - 1, ranks, {cases[i].input_ids}));
      for (const auto& result : results) ASSERT_EQ(result.status.message(), "");
      const std::vector<float>& logits = results.back().logits[0];
      if (ranks == 1) expected.push_back(logits);
      EXPECT_EQ(logits, expected[i]) << ranks << " ranks, case " << i;
    }
  }
}

TEST_P(Ranks, AgreeWithTheOracleWhenReduced) {
  const double tolerance = GetParam() == DType::float32 ? kFloat32Tolerance : kBfloat16Tolerance;
  for (const int ranks : {2, 4}) {
    RankTeam team(fp8_directory(), ranks, {.activations = GetParam()}, cpu);
    for (const OracleCase& expected : read_oracle(fp8_directory())) {
      const auto results = team.step(work_on(0, ranks, {expected.input_ids}));
      ASSERT_EQ(results[0].status.message(), "");
      EXPECT_LT(relative_error(results[0].logits[0], expected), tolerance) << ranks << " ranks";
    }
  }
}

TEST_P(Ranks, WhatSharesABatchOrAStepChangesNoBit) {
  const auto cases = read_oracle(fp8_directory());
  const compute::Options options{.activations = GetParam(), .deterministic = true};
  std::vector<std::vector<float>> alone;
  RankTeam one(fp8_directory(), 1, options, cpu);
  for (const OracleCase& c : cases) alone.push_back(one.step(work_on(0, 1, {c.input_ids}))[0].logits[0]);
  RankTeam two(fp8_directory(), 2, options, cpu);
  std::vector<RankTeam::Work> work(2);
  work[0].prompts = {cases[1].input_ids, cases[0].input_ids};
  work[1].prompts = {cases[0].input_ids, cases[2].input_ids, cases[1].input_ids};
  const auto results = two.step(work);
  EXPECT_EQ(results[0].logits, (std::vector{alone[1], alone[0]}));
  EXPECT_EQ(results[1].logits, (std::vector{alone[0], alone[2], alone[1]}));
}

TEST(Flags, AnyRanksFlagsReachAllRanks) {
  RankTeam team(fp8_directory(), 3, {}, cpu);
  for (const bool has_work : {false, true}) {
    for (const bool wants_epoch : {false, true}) {
      std::vector<RankTeam::Work> work = work_on(0, 3, {{1, 2, 3}});
      work[2].flags = {.has_work = has_work, .wants_epoch = wants_epoch};
      for (const auto& result : team.step(work)) {
        ASSERT_EQ(result.status.message(), "");
        EXPECT_EQ(result.any.has_work, has_work);
        EXPECT_EQ(result.any.wants_epoch, wants_epoch);
      }
    }
  }
}

TEST(Flags, AStepWithoutAnyTokens) {
  RankTeam team(fp8_directory(), 2, {}, cpu);
  for (const auto& result : team.step(std::vector<RankTeam::Work>(2))) {
    EXPECT_EQ(result.status.message(), "");
    EXPECT_FALSE(result.any.has_work);
  }
}

}  // namespace
}  // namespace sluice::test
