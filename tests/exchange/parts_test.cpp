// The pieces: placement, plan, routing and the rounding and summing of rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "cluster.h"
#include "exchange/routing.h"
#include "exchange/rows.h"

namespace sluice::exchange::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Placement, GivesContiguousRunsThatDifferByAtMostOne) {
  const auto placement = Placement::contiguous(10, 4).value();
  EXPECT_EQ(placement.experts(), 10);
  EXPECT_EQ(placement.ranks(), 4);
  EXPECT_EQ(placement.most_experts_per_rank(), 3);
  EXPECT_THAT(placement.experts_of(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(placement.experts_of(1), ElementsAre(3, 4, 5));
  EXPECT_THAT(placement.experts_of(2), ElementsAre(6, 7));
  EXPECT_THAT(placement.experts_of(3), ElementsAre(8, 9));
  for (int rank = 0; rank < 4; ++rank) {
    int local = 0;
    for (const int expert : placement.experts_of(rank)) {
      EXPECT_EQ(placement.owner(expert), rank);
      EXPECT_EQ(placement.local_index(expert), local++);
    }
  }
}

TEST(Placement, RefusesMoreRanksThanExperts) {
  EXPECT_THAT(Placement::contiguous(3, 4).status().message(), HasSubstr("3 experts on 4 ranks"));
  EXPECT_FALSE(Placement::contiguous(3, 0).ok());
  EXPECT_FALSE(Placement::contiguous(0, 0).ok());
  EXPECT_FALSE(Placement::contiguous(3, -1).ok());
  EXPECT_TRUE(Placement::contiguous(3, 3).ok());
}

TEST(Plan, CountsEveryByte) {
  // 4 ranks, 2 experts each, 10 tokens to 2 of them: 20 pairs; a row of 100 bfloat16 takes 256 bytes, of
  // float32 448.
  const auto placement = Placement::contiguous(8, 4).value();
  const auto exact = plan(make_shape(4, 8, 3, 100, 10, DType::bfloat16, true), placement).value();
  EXPECT_EQ(exact.dispatch_slab_bytes, 64 + 256 - 64 + 10 * 256u);  // header, 2 x 4 + 20 x 8 to 64, rows
  EXPECT_EQ(exact.combine_slab_bytes, 64 + 20 * 448u);
  EXPECT_EQ(exact.window_bytes, 4 * 2 * (exact.dispatch_slab_bytes + exact.combine_slab_bytes + 2 * 64));
  EXPECT_EQ(exact.staging_bytes, exact.window_bytes);
  EXPECT_EQ(exact.own_bytes, 2 * 10 * 256u);
  EXPECT_THAT(exact.formula,
              HasSubstr("dispatch slab 2816 = header 64 + 2 experts x 4 + 20 pairs x 8 (to 64) + 10 "
                        "tokens x 256; combine slab 9024 = header 64 + 20 pairs x 448"));
  const auto reduced = plan(make_shape(4, 8, 3, 100, 10, DType::bfloat16, false), placement).value();
  EXPECT_EQ(reduced.dispatch_slab_bytes, 320 + 10 * 256u);
  EXPECT_EQ(reduced.combine_slab_bytes, 64 + 10 * 256u);
  const auto alone =
      plan(make_shape(1, 8, 3, 100, 10, DType::float32, false), Placement::contiguous(8, 1).value()).value();
  EXPECT_EQ(alone.window_bytes, 0u);
  EXPECT_EQ(alone.formula, "one rank: no window; own rows 8960 = 2 halves x 10 tokens x 448");
}

TEST(Plan, RefusesImpossibleShapes) {
  const Shape good = make_shape(4, 8, 3, 100, 10, DType::bfloat16, true);
  const auto placement = Placement::contiguous(8, 4).value();
  const auto refused = [&](auto change) {
    Shape shape = good;
    change(shape);
    const auto result = plan(shape, placement);
    EXPECT_EQ(result.status().code(), Code::invalid_argument);
    return result.status().message();
  };
  EXPECT_THAT(refused([](Shape& s) { s.ranks = 0; }), HasSubstr("ranks is 0; it must be between 1 and 4096"));
  EXPECT_THAT(refused([](Shape& s) { s.ranks = s.experts = 4097; }), HasSubstr("ranks is 4097"));
  EXPECT_THAT(refused([](Shape& s) { s.ranks = 9; }), HasSubstr("9 ranks for 8 experts"));
  EXPECT_THAT(refused([](Shape& s) { s.experts = 0; }), HasSubstr("experts is 0"));
  EXPECT_THAT(refused([](Shape& s) { s.top_k = 0; }), HasSubstr("top_k is 0; it must be between 1 and 8"));
  EXPECT_THAT(refused([](Shape& s) { s.top_k = 9; }), HasSubstr("top_k is 9; it must be between 1 and 8"));
  EXPECT_THAT(refused([](Shape& s) { s.experts = 64, s.top_k = 17; }), HasSubstr("between 1 and 16"));
  EXPECT_THAT(refused([](Shape& s) { s.hidden = 0; }), HasSubstr("hidden is 0"));
  EXPECT_THAT(refused([](Shape& s) { s.max_tokens = -5; }), HasSubstr("max_tokens is -5"));
  EXPECT_THAT(refused([](Shape& s) { s.wire = DType::float8_e4m3; }),
              HasSubstr("wire type is float8_e4m3; it must be float32 or bfloat16"));
  EXPECT_THAT(refused([](Shape& s) { s.experts = 16; }),
              HasSubstr("16 experts on 4 ranks, but the placement has 8"));
  EXPECT_THAT(refused([](Shape& s) { s.max_tokens = 1 << 24, s.hidden = 1 << 24; }), HasSubstr("exceed"));
  const auto wide = plan(make_shape(256, 4096, 16, 1, 1 << 24, DType::bfloat16, true),
                         Placement::contiguous(4096, 256).value());
  EXPECT_THAT(wide.status().message(), HasSubstr("lower max_tokens to at most 524287"));
}

TEST(Routing, ListsRowsOncePerRankInTokenOrder) {
  const Shape shape = make_shape(2, 4, 2, 1, 4, DType::float32, true);
  const auto placement = Placement::contiguous(4, 2).value();
  Routing routing(shape, placement);
  const std::vector<int32_t> experts{3, 0, /**/ 1, 0, /**/ 2, 3};
  ASSERT_TRUE(routing.build(experts, 3).ok());
  EXPECT_THAT(routing.rows(0), ElementsAre(0, 1));
  EXPECT_THAT(routing.rows(1), ElementsAre(0, 2));
  EXPECT_THAT(routing.choices(0), ElementsAre(1, 2, 3));
  EXPECT_THAT(routing.choices(1), ElementsAre(0, 4, 5));
  const auto pairs = routing.pairs(0);
  EXPECT_EQ(pairs[0].row, 0u);
  EXPECT_EQ(pairs[0].expert, 0u);
  EXPECT_EQ(pairs[1].row, 1u);
  EXPECT_EQ(pairs[1].expert, 1u);
  EXPECT_EQ(pairs[2].row, 1u);
  EXPECT_EQ(pairs[2].expert, 0u);
  EXPECT_EQ(routing.slot(5).rank, 1);
  EXPECT_EQ(routing.slot(5).row, 1);
  EXPECT_EQ(routing.slot(5).pair, 2);
  ASSERT_TRUE(routing.build({}, 0).ok());
  EXPECT_TRUE(routing.rows(0).empty());
  EXPECT_TRUE(routing.pairs(1).empty());
}

// Every upper half of a float with lower halves around the ties.
TEST(Rows, RoundAsTheScalarConversionDoes) {
  std::vector<float> values;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  const auto count = static_cast<int64_t>(values.size());
  std::vector<uint16_t> narrow(values.size());
  convert_row(narrow.data(), DType::bfloat16, values.data(), DType::float32, count);
  std::vector<float> wide(values.size());
  convert_row(wide.data(), DType::float32, narrow.data(), DType::bfloat16, count);
  std::vector<uint16_t> summed(values.size());
  const WeightedRow row{values.data(), 1.0F, DType::float32};
  sum_rows(std::span(&row, 1), summed.data(), DType::bfloat16, count);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t expected = float_to_bfloat16(values[i]);
    ASSERT_EQ(narrow[i], expected) << std::bit_cast<uint32_t>(values[i]);
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), static_cast<uint32_t>(expected) << 16);
    if (std::isnan(values[i])) continue;
    ASSERT_EQ(summed[i], expected);
  }
}

TEST(Rows, AddInTheOrderGiven) {
  // In float32, (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1.
  constexpr int64_t kMany = 3000;  // several blocks
  const std::vector<float> big(kMany, 1e8F);
  const std::vector<float> one(kMany, 1.0F);
  std::vector<float> out(kMany);
  const auto sum = [&](std::vector<WeightedRow> rows) {
    sum_rows(rows, out.data(), DType::float32, kMany);
    return std::pair(out.front(), out.back());
  };
  EXPECT_EQ(sum({{big.data(), 1.0F}, {one.data(), 1.0F}, {big.data(), -1.0F}}), std::pair(0.0F, 0.0F));
  EXPECT_EQ(sum({{big.data(), 1.0F}, {big.data(), -1.0F}, {one.data(), 1.0F}}), std::pair(1.0F, 1.0F));
  // The first product is taken as it is: no 0 is added that would turn -0 into 0.
  const std::vector<float> negative_zero(kMany, -0.0F);
  sum({{negative_zero.data(), 1.0F}});
  EXPECT_TRUE(std::signbit(out.front()));
}

}  // namespace
}  // namespace sluice::exchange::test
