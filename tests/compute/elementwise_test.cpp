// Conversions against base/dtype.h bit by bit, and exp against double precision.
#include "compute/cpu/elementwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "support.h"

namespace sluice::compute {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Conversion, EveryBfloat16BecomesItsFloat) {
  for_each_instruction_set([](const std::string&) {
    std::vector<uint16_t> codes(1 << 16);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
    std::vector<float> floats(codes.size());
    cpu::load_row(codes.data(), DType::bfloat16, 1 << 16, 1 << 16, floats.data());
    for (size_t i = 0; i < codes.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(bfloat16_to_float(codes[i])))
          << i;
    }
  });
}

// All halfway cases and their neighbours, for every exponent and sign: NaN, infinity, subnormals among them.
TEST(Conversion, FloatsRoundToBfloat16LikeTheScalarDefinition) {
  std::vector<float> floats;
  for (uint32_t high = 0; high < (1U << 16); ++high) {
    for (const uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      floats.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  const auto count = static_cast<int64_t>(floats.size());
  for_each_instruction_set([&](const std::string&) {
    std::vector<uint16_t> rounded(floats.size());
    cpu::store_row(floats.data(), count, DType::bfloat16, rounded.data());
    std::vector<float> in_place = floats;
    cpu::round_row(in_place.data(), count, DType::bfloat16);
    for (size_t i = 0; i < floats.size(); ++i) {
      ASSERT_EQ(rounded[i], float_to_bfloat16(floats[i])) << std::bit_cast<uint32_t>(floats[i]);
      ASSERT_EQ(std::bit_cast<uint32_t>(in_place[i]), static_cast<uint32_t>(rounded[i]) << 16);
    }
  });
}

TEST(Conversion, RowsOfAnyLengthTouchNothingBeyondTheirEnd) {
  for_each_instruction_set([](const std::string&) {
    for (int64_t length = 0; length <= 70; ++length) {
      std::vector<float> from(static_cast<size_t>(length), 1.5F);
      std::vector<uint16_t> narrow(static_cast<size_t>(length) + 1, 7);
      cpu::store_row(from.data(), length, DType::bfloat16, narrow.data());
      ASSERT_EQ(narrow.back(), 7);
      std::vector<float> wide(static_cast<size_t>(length) + 6, 9.0F);
      cpu::load_row(narrow.data(), DType::bfloat16, length, length + 5, wide.data());
      for (int64_t i = 0; i < length; ++i) ASSERT_EQ(wide[static_cast<size_t>(i)], 1.5F);
      for (int64_t i = length; i < length + 5; ++i) ASSERT_EQ(wide[static_cast<size_t>(i)], 0.0F);
      ASSERT_EQ(wide.back(), 9.0F);
    }
  });
}

int64_t ulps_apart(float a, float b) {
  return std::abs(static_cast<int64_t>(std::bit_cast<int32_t>(a)) - std::bit_cast<int32_t>(b));
}

TEST(Exp, IsWithinTwoUlps) {
  std::vector<float> inputs;
  for (float x = -104.5F; x < 89.5F; x += 1.0F / 512) inputs.push_back(x + 1e-4F * std::sin(x));
  for (const float x : {0.0F, -0.0F, 1e-30F, -1e-30F, 88.72283F, -87.33654F, -103.9F}) inputs.push_back(x);
  const auto count = static_cast<int64_t>(inputs.size());
  std::vector<float> fused;
  for_each_instruction_set([&](const std::string& name) {
    std::vector<float> results(inputs.size());
    cpu::exp_row(inputs.data(), count, results.data());
    int64_t worst = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto exact = static_cast<float>(std::exp(static_cast<double>(inputs[i])));
      worst = std::max(worst, ulps_apart(results[i], exact));
      ASSERT_LE(ulps_apart(results[i], exact), 2) << inputs[i];
    }
    RecordProperty("worst_ulps_" + name, static_cast<int>(worst));
    if (!has_fused_multiply_add(name)) return;
    if (fused.empty()) fused = results;
    EXPECT_EQ(results, fused);
  });
}

TEST(Exp, EndsAsItShould) {
  for_each_instruction_set([](const std::string&) {
    const std::vector<float> inputs = {
        -kInfinity, -1e30F, -110.0F, 90.0F, 1e30F, kInfinity, std::numeric_limits<float>::quiet_NaN()};
    std::vector<float> results(inputs.size());
    cpu::exp_row(inputs.data(), static_cast<int64_t>(inputs.size()), results.data());
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i], 0.0F);
    for (size_t i = 3; i < 6; ++i) EXPECT_EQ(results[i], kInfinity);
    EXPECT_TRUE(std::isnan(results[6]));
  });
}

TEST(Add, AddsRowsInPlace) {
  Random random(1);
  for (const int64_t cols : {1, 16, 100, 129}) {
    HostMatrix x = random_matrix(random, DType::float32, 3, cols);
    const HostMatrix y = random_matrix(random, DType::float32, 3, cols);
    const HostMatrix before = x;
    make_backend(DType::float32, false)->add(x.view(), y.view());
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(x.at(r, c), before.at(r, c) + y.at(r, c));
    }
  }
}

TEST(SiluMul, MatchesDoublePrecision) {
  Random random(2);
  for (const DType type : {DType::float32, DType::bfloat16}) {
    const auto backend = make_backend(type, false);
    for (const int64_t cols : {1, 17, 64, 768}) {
      const HostMatrix gate = random_matrix(random, DType::float32, 5, cols, 4.0F);
      const HostMatrix up = random_matrix(random, DType::float32, 5, cols);
      HostMatrix out(type, 5, cols);
      backend->silu_mul(gate.view(), up.view(), out.view());
      const double tolerance = type == DType::float32 ? 1e-6 : 5e-3;
      for (int64_t r = 0; r < 5; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const double g = static_cast<double>(gate.at(r, c));
          const double exact = g / (1 + std::exp(-g)) * static_cast<double>(up.at(r, c));
          ASSERT_NEAR(static_cast<double>(out.at(r, c)), exact, tolerance * std::abs(exact) + 1e-30);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::compute
