#include "bench/race.h"

#include <gtest/gtest.h>

#include "bench/traffic.h"

namespace sluice::bench {
namespace {

Settings small(const std::string& fabric) {
  Settings settings;
  settings.shape.ranks = 3;
  settings.shape.experts = 11;
  settings.shape.top_k = 4;
  settings.shape.hidden = 72;
  settings.shape.max_tokens = 5;
  settings.shape.wire = DType::bfloat16;
  settings.tokens = 12;  // three rounds
  settings.fabric = fabric;
  settings.raw = true;
  settings.proof_bytes = 1 << 12;
  return settings;
}

class Races : public testing::TestWithParam<std::tuple<std::string, Load, bool>> {};

TEST_P(Races, EveryByteIsVerifiedAndTheRatiosAreThere) {
  Settings settings = small(std::get<0>(GetParam()));
  settings.load = std::get<1>(GetParam());
  settings.shape.exact = std::get<2>(GetParam());
  RaceOptions options;
  options.blocks = 2;
  options.repetitions = 4;
  options.threads = true;
  const auto result = race(settings, options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ((*result)["verified"], true);
  EXPECT_EQ((*result)["repetitions"], 4);
  EXPECT_GT((*result)["ratio_to_raw"].get<double>(), 0);
  EXPECT_GT((*result)["ratio_to_floor"].get<double>(), 0);
  EXPECT_FALSE(result->contains("ratio_to_mpi"));
  for (const char* side : {"exchange", "raw", "copies"}) {
    EXPECT_GT((*result)[side]["both_us"]["p50"].get<double>(), 0) << side;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Races,
                         testing::Values(std::tuple("local", Load::uniform, false),
                                         std::tuple("local", Load::skewed, true),
                                         std::tuple("local", Load::one_expert, false),
                                         std::tuple("tcp", Load::uniform, false)));

TEST(Race, AFabricThatIsNotThereIsTheRaceError) {
  RaceOptions options;
  options.threads = true;
  const auto result = race(small("carrier-pigeon"), options);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("carrier-pigeon"), std::string::npos) << result.status().message();
}

TEST(Traffic, RowsAreCountedOncePerRankAndPairByHand) {
  Settings settings = small("local");
  settings.shape.ranks = 2;
  settings.shape.experts = 4;
  settings.shape.top_k = 2;
  settings.shape.hidden = 10;
  settings.shape.max_tokens = 3;
  settings.tokens = 3;
  settings.load = Load::one_expert;  // every token chooses experts 0 and 1, which rank 0 holds
  const auto placement = *exchange::Placement::contiguous(4, 2);
  const auto first = make_traffic(settings, placement, 0);
  const auto second = make_traffic(settings, placement, 1);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].pairs, 12);  // of both ranks' three tokens
  EXPECT_EQ(second[0].pairs, 0);
  EXPECT_EQ(remote_bytes(settings, first, 0).dispatch, 0U);
  EXPECT_EQ(remote_bytes(settings, first, 0).combine, 3U * 10 * 2);
  EXPECT_EQ(remote_bytes(settings, second, 1).dispatch, 3U * 10 * 2);
  EXPECT_EQ(remote_bytes(settings, second, 1).combine, 0U);
  EXPECT_EQ(second[0].dispatch_bytes[0], 3U * 10 * 2 + 6 * 12);
  // Pairs are grouped by expert: rank 0's rows take 0, 1, 2 of each expert, rank 1's 3, 4, 5.
  EXPECT_EQ(first[0].received[1][0], (RowPairs{3, 9}));
}

}  // namespace
}  // namespace sluice::bench
