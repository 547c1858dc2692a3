#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "ranks.h"

namespace sluice::fabric {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(InProcessHub, EveryRankGetsEverybodysValueInRankOrder) {
  run_ranks(3, [](int rank, Bootstrap& bootstrap) {
    for (int round = 0; round < 50; ++round) {
      auto values = bootstrap.all_gather("values", std::to_string(rank * 100 + round), soon());
      ASSERT_TRUE(values.ok()) << values.status().message();
      EXPECT_THAT(*values, ElementsAre(std::to_string(round), std::to_string(100 + round),
                                       std::to_string(200 + round)));
    }
  });
}

TEST(InProcessHub, NamesTheRanksThatAreMissing) {
  InProcessHub hub(4);
  auto values = hub.join(1)->all_gather("addresses", "a", Deadline::after(milliseconds(20)));
  ASSERT_FALSE(values.ok());
  EXPECT_EQ(values.status().code(), Code::deadline_exceeded);
  EXPECT_THAT(values.status().message(), HasSubstr("ranks 0, 2, 3 are missing from 'addresses' after 2"));
}

TEST(InProcessHub, RefusesCallsInDifferentOrder) {
  InProcessHub hub(2);
  auto first = hub.join(0)->all_gather("addresses", "a", Deadline::after(milliseconds(1)));
  ASSERT_FALSE(first.ok());
  EXPECT_THAT(first.status().message(), HasSubstr("rank 1 is missing"));
  auto second = hub.join(1)->all_gather("keys", "b", soon());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("rank 1 gathers 'keys' while rank 0 gathers 'addresses'"));
}

TEST(InProcessHub, CallsInDifferentOrderFailWhoWaitsAndWhoComesLaterAtOnce) {
  InProcessHub hub(3);
  std::thread waiting([&] {
    const auto result = hub.join(0)->all_gather("addresses", "a", Deadline::after(seconds(600)));
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.status().message(), HasSubstr("the same order"));
  });
  // Whichever of the two comes second is refused, and the first with it.
  const auto other = hub.join(1)->all_gather("keys", "b", Deadline::after(seconds(600)));
  waiting.join();
  for (const auto& result : {other, hub.join(2)->all_gather("keys", "c", Deadline::after(seconds(600)))}) {
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.status().message(), HasSubstr("the same order"));
  }
}

TEST(InProcessHub, SharesObjects) {
  run_ranks(3, [](int rank, Bootstrap& bootstrap) {
    auto shared = bootstrap.all_share("objects", std::make_shared<int>(rank * 7), soon());
    ASSERT_TRUE(shared.ok());
    ASSERT_EQ(shared->size(), 3u);
    for (int peer = 0; peer < 3; ++peer)
      EXPECT_EQ(*std::static_pointer_cast<int>((*shared)[static_cast<size_t>(peer)]), peer * 7);
  });
}

}  // namespace
}  // namespace sluice::fabric
