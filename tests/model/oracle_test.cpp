// The forward pass against what transformers computed, on one rank: on the reference back end, which says
// whether the model is right, and on the CPU's.
#include <gtest/gtest.h>

#include "single_rank.h"
#include "support/oracle.h"
#include "support/reference_backend.h"

namespace sluice::test {
namespace {

constexpr double kFloat32Tolerance = 1e-4;
constexpr double kBfloat16Tolerance = 2e-2;

enum class Which { reference, cpu };

std::unique_ptr<compute::Backend> backend_of(Which which, DType activations, bool deterministic = true) {
  const compute::Options options{.activations = activations, .deterministic = deterministic, .threads = 1};
  if (which == Which::reference) return make_reference_backend(options);
  return value_or_throw(compute::make_cpu_backend(options));
}

void expect_logits(const std::string& directory, std::unique_ptr<compute::Backend> backend) {
  const double tolerance =
      backend->options().activations == DType::float32 ? kFloat32Tolerance : kBfloat16Tolerance;
  SingleRank rank(directory, std::move(backend));
  const auto cases = read_oracle(directory);
  for (size_t i = 0; i < cases.size(); ++i) {
    rank.reset();
    EXPECT_LT(relative_error(rank.feed(cases[i].input_ids), cases[i]), tolerance)
        << directory << " case " << i;
  }
}

void expect_greedy(const std::string& directory, Which which, size_t at_most) {
  SingleRank rank(directory, backend_of(which, DType::float32));
  for (const OracleCase& expected : read_oracle(directory)) {
    const size_t count = std::min(at_most, expected.greedy.size());
    const std::vector<int32_t> head(expected.greedy.begin(),
                                    expected.greedy.begin() + static_cast<int64_t>(count));
    EXPECT_EQ(rank.greedy(expected.input_ids, count), head) << directory;
  }
}

class Oracle : public testing::TestWithParam<std::tuple<const char*, Which>> {
 protected:
  std::string directory() const { return *oracle_directory(std::get<0>(GetParam())); }
  Which which() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Small, Oracle,
                         testing::Combine(testing::Values("qwen3-moe-a", "qwen3-moe-a-fp8"),
                                          testing::Values(Which::reference, Which::cpu)),
                         [](const auto& info) {
                           const std::string name = std::get<0>(info.param);
                           return std::string(name == "qwen3-moe-a" ? "a" : "a_fp8") +
                                  (std::get<1>(info.param) == Which::cpu ? "_cpu" : "_reference");
                         });

TEST_P(Oracle, Float32Logits) { expect_logits(directory(), backend_of(which(), DType::float32)); }
TEST_P(Oracle, Bfloat16Logits) { expect_logits(directory(), backend_of(which(), DType::bfloat16)); }
TEST_P(Oracle, LogitsWithTheFastestKernels) {
  expect_logits(directory(), backend_of(which(), DType::float32, false));
  expect_logits(directory(), backend_of(which(), DType::bfloat16, false));
}
TEST_P(Oracle, GreedyContinuation) { expect_greedy(directory(), which(), 24); }

TEST_P(Oracle, ChunkedPrefillGivesTheSameBits) {
  for (const DType activations : {DType::float32, DType::bfloat16}) {
    SingleRank rank(directory(), backend_of(which(), activations));
    for (const OracleCase& expected : read_oracle(directory())) {
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
TEST(SharedOracle, Qwen3MoeB) {
  const auto directory = oracle_directory("qwen3-moe-b");
  if (!directory) GTEST_SKIP() << "no oracle/qwen3-moe-b in $SLUICE_SHARED or ../shared";
  for (const Which which : {Which::reference, Which::cpu}) {
    expect_logits(*directory, backend_of(which, DType::float32));
    expect_logits(*directory, backend_of(which, DType::bfloat16));
    expect_greedy(*directory, which, 24);
  }
}

TEST(DemoModel, Float32Logits) { expect_logits(demo_directory(), backend_of(Which::cpu, DType::float32)); }
TEST(DemoModel, Bfloat16Logits) {
  for (const bool deterministic : {false, true}) {
    expect_logits(demo_directory(), backend_of(Which::cpu, DType::bfloat16, deterministic));
  }
}
TEST(DemoModel, GreedyContinuation) { expect_greedy(demo_directory(), Which::cpu, 128); }

}  // namespace
}  // namespace sluice::test
