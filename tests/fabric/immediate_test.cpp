#include "fabric/immediate.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::fabric {
namespace {

TEST(Immediate, LaysFieldsOutAsTheWireSays) {
  EXPECT_EQ(encode_immediate({.kind = FragmentKind::fenced}), 0xc0000000u);
  EXPECT_EQ(encode_immediate({.generation = 7}), 7u << 27);
  EXPECT_EQ(encode_immediate({.source = 4095}), 4095u << 15);
  EXPECT_EQ(encode_immediate({.half = 1}), 1u << 14);
  EXPECT_EQ(encode_immediate({.part = 63}), 63u << 8);
  EXPECT_EQ(encode_immediate({.stripe = 15, .stripes = 16}), 0xffu);
  EXPECT_EQ(encode_immediate({FragmentKind::fenced, 7, 4095, 1, 63, 15, 16}), 0xffffffffu);
}

TEST(Immediate, EveryPossibleOneComesBack) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200'000; ++i) {
    Immediate it{.kind = static_cast<FragmentKind>(random() % 4),
                 .generation = static_cast<uint32_t>(random() % 8),
                 .source = static_cast<uint32_t>(random() % 4096),
                 .half = static_cast<uint32_t>(random() % 2),
                 .part = static_cast<uint32_t>(random() % 64),
                 .stripe = 0,
                 .stripes = static_cast<uint32_t>(random() % 16 + 1)};
    it.stripe = static_cast<uint32_t>(random() % it.stripes);
    const auto bits = encode_immediate(it);
    ASSERT_TRUE(bits.has_value());
    ASSERT_EQ(decode_immediate(*bits), it);
  }
}

TEST(Immediate, DecodingIsTheInverseOrRefuses) {
  std::mt19937 random(2);
  int refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    const auto it = decode_immediate(bits);
    if (!it) {
      ++refused;
      EXPECT_GT(bits >> 4 & 15, bits & 15);
      continue;
    }
    ASSERT_EQ(encode_immediate(*it), bits);
  }
  EXPECT_GT(refused, 0);
}

TEST(Immediate, RefusesFieldsThatDoNotFit) {
  EXPECT_FALSE(encode_immediate({.kind = static_cast<FragmentKind>(4)}));
  EXPECT_FALSE(encode_immediate({.generation = 8}));
  EXPECT_FALSE(encode_immediate({.source = 4096}));
  EXPECT_FALSE(encode_immediate({.half = 2}));
  EXPECT_FALSE(encode_immediate({.part = 64}));
  EXPECT_FALSE(encode_immediate({.stripes = 0}));
  EXPECT_FALSE(encode_immediate({.stripes = 17}));
  EXPECT_FALSE(encode_immediate({.stripe = 3, .stripes = 3}));
}

}  // namespace
}  // namespace sluice::fabric
