// The forward pass against what transformers computed, on one rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "single_rank.h"
#include "support/oracle.h"
#include "support/reference_backend.h"

namespace sluice::test {
namespace {

constexpr double kFloat32Tolerance = 1e-4;
constexpr double kBfloat16Tolerance = 2e-2;

std::unique_ptr<compute::Backend> backend_of(DType activations) {
  return make_reference_backend({.activations = activations, .deterministic = true, .threads = 1});
}

void expect_logits(const std::string& directory, DType activations, double tolerance) {
  SingleRank rank(directory, backend_of(activations));
  const auto cases = read_oracle(directory);
  for (size_t i = 0; i < cases.size(); ++i) {
    rank.reset();
    const double error = relative_error(rank.feed(cases[i].input_ids), cases[i]);
    fmt::print("{} {} case {}: {:.2e}\n", directory, dtype_name(activations), i, error);
    EXPECT_LT(error, tolerance) << directory << " case " << i;
  }
}

void expect_greedy(const std::string& directory, size_t at_most) {
  SingleRank rank(directory, backend_of(DType::float32));
  for (const OracleCase& expected : read_oracle(directory)) {
    const size_t count = std::min(at_most, expected.greedy.size());
    const std::vector<int32_t> head(expected.greedy.begin(),
                                    expected.greedy.begin() + static_cast<int64_t>(count));
    EXPECT_EQ(rank.greedy(expected.input_ids, count), head) << directory;
  }
}

class InRepository : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Oracles, InRepository, testing::Values("qwen3-moe-a", "qwen3-moe-a-fp8"),
                         [](const auto& info) { return info.param == "qwen3-moe-a" ? "a" : "a_fp8"; });

TEST_P(InRepository, Float32Logits) {
  expect_logits(*oracle_directory(GetParam()), DType::float32, kFloat32Tolerance);
}
TEST_P(InRepository, Bfloat16Logits) {
  expect_logits(*oracle_directory(GetParam()), DType::bfloat16, kBfloat16Tolerance);
}
TEST_P(InRepository, GreedyContinuation) { expect_greedy(*oracle_directory(GetParam()), 24); }

TEST_P(InRepository, ChunkedPrefillGivesTheSameBits) {
  const std::string directory = *oracle_directory(GetParam());
  for (const DType activations : {DType::float32, DType::bfloat16}) {
    SingleRank rank(directory, backend_of(activations));
    for (const OracleCase& expected : read_oracle(directory)) {
      rank.reset();
      const std::vector<float> whole = rank.feed(expected.input_ids);
      for (const int chunk : {1, 7, 64}) {
        rank.reset();
        EXPECT_EQ(rank.feed(expected.input_ids, chunk), whole)
            << dtype_name(activations) << " in chunks of " << chunk;
      }
    }
  }
}

// Dense layers, a tied head, weights that are not normalised, one key head.
TEST(SharedOracle, QwenMoeB) {
  const auto directory = oracle_directory("qwen3-moe-b");
  if (!directory) GTEST_SKIP() << "no oracle/qwen3-moe-b in $SLUICE_SHARED or ../shared";
  expect_logits(*directory, DType::float32, kFloat32Tolerance);
  expect_logits(*directory, DType::bfloat16, kBfloat16Tolerance);
  expect_greedy(*directory, 24);
}

TEST(DemoModel, Float32Logits) { expect_logits(demo_directory(), DType::float32, kFloat32Tolerance); }
TEST(DemoModel, Bfloat16Logits) { expect_logits(demo_directory(), DType::bfloat16, kBfloat16Tolerance); }
TEST(DemoModel, GreedyContinuation) { expect_greedy(demo_directory(), 16); }

}  // namespace
}  // namespace sluice::test
