// The four calls of an exchange by themselves: two exchanges under way, ranks that one thread drives by
// turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster.h"
#include "turns.h"

namespace sluice::exchange::test {
namespace {

using testing::HasSubstr;

const Nanos kLong = seconds(60);

class SplitPhases : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Modes, SplitPhases, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "exact" : "reduced"; });

TEST_P(SplitPhases, OneThreadDrivesAllRanksWithTwoExchangesUnderWay) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Shape shape = make_shape(4, 9, 3, 20, 5, DType::bfloat16, GetParam());
    Cluster cluster(shape, seed);
    std::vector<std::unique_ptr<Turns>> ranks;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      ranks.push_back(std::make_unique<Turns>(cluster.open(rank), cluster.placement(), rank, 60,
                                              seed * 100 + static_cast<uint64_t>(rank)));
    }
    std::mt19937_64 random(seed);
    const Deadline deadline = Deadline::after(kLong);
    const auto all_done = [&] {
      return std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank->done(); });
    };
    while (!all_done() && !deadline.expired() && !HasFatalFailure()) ranks[random() % ranks.size()]->turn();
    ASSERT_TRUE(all_done()) << "seed " << seed;
    for (const auto& rank : ranks) EXPECT_EQ(rank->most_under_way(), 2);
  }
}

TEST(TwoUnderWay, AThirdExchangeIsRefusedUntilTheFirstIsCollected) {
  const Shape shape = make_shape(1, 2, 1, 4, 2, DType::float32, true);
  auto exchange = Cluster(shape).open(0);
  const Tokens none;
  const ConstMatrix no_rows(nullptr, DType::float32, 0, 4, 4);
  const Matrix no_out{nullptr, DType::float32, 0, 4, 4};
  const auto send = [&] { return exchange->dispatch_send(0, no_rows, {}, {}, {}, Deadline::after(kLong)); };
  ASSERT_TRUE(send().ok());
  ASSERT_TRUE(send().ok());
  EXPECT_THAT(send().message(), HasSubstr("with 2 exchanges under way"));
  ASSERT_TRUE(exchange->dispatch_receive(Deadline::after(kLong)).ok());
  ASSERT_TRUE(exchange->combine_send(no_rows, Deadline::after(kLong)).ok());
  EXPECT_FALSE(send().ok());
  ASSERT_TRUE(exchange->combine_receive(no_out, Deadline::after(kLong)).ok());
  EXPECT_TRUE(send().ok());
  ASSERT_TRUE(exchange->dispatch_receive(Deadline::after(kLong)).ok());
  ASSERT_TRUE(exchange->dispatch_receive(Deadline::after(kLong)).ok());
  EXPECT_THAT(exchange->dispatch_receive(Deadline::after(kLong)).status().message(),
              HasSubstr("dispatch_receive() without dispatch_send()"));
  EXPECT_FALSE(exchange->blame().has_value());
}

TEST(TwoUnderWay, ReceivableSaysWhetherAReceiveWouldWait) {
  Cluster cluster(make_shape(2, 2, 1, 4, 2, DType::float32, true));
  auto exchange = cluster.open(0);
  auto other = cluster.open(1);
  const ConstMatrix no_rows(nullptr, DType::float32, 0, 4, 4);
  // Nothing was sent: a receive would be refused at once.
  EXPECT_TRUE(exchange->receivable(Phase::dispatch));
  EXPECT_TRUE(exchange->receivable(Phase::combine));
  ASSERT_TRUE(exchange->dispatch_send(0, no_rows, {}, {}, {}, Deadline::after(kLong)).ok());
  EXPECT_FALSE(exchange->receivable(Phase::dispatch));
  ASSERT_TRUE(other->dispatch_send(0, no_rows, {}, {}, {}, Deadline::after(kLong)).ok());
  ASSERT_TRUE(exchange->dispatch_receive(Deadline::after(kLong)).ok());
  ASSERT_TRUE(exchange->combine_send(no_rows, Deadline::after(kLong)).ok());
  EXPECT_FALSE(exchange->receivable(Phase::combine));
  // A lost peer ends the waiting.
  cluster.network().kill(1);
  EXPECT_TRUE(exchange->receivable(Phase::combine));
  EXPECT_EQ(
      exchange->combine_receive(Matrix{nullptr, DType::float32, 0, 4, 4}, Deadline::after(kLong)).code(),
      Code::unavailable);
}

}  // namespace
}  // namespace sluice::exchange::test
