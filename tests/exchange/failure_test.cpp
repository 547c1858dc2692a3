// What a rank does when others are late, gone or wake it: every wait ends, and says whom it was for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "cluster.h"

namespace sluice::exchange::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr Nanos kLong = seconds(60);
constexpr Nanos kShort = milliseconds(40);

Shape three_ranks() { return make_shape(3, 6, 2, 8, 4, DType::float32, true); }

Result<Received> dispatch_nothing(Exchange& exchange, int layer, Nanos wait) {
  return exchange.dispatch(layer, ConstMatrix(nullptr, DType::float32, 0, 8, 8), {}, {}, {},
                           Deadline::after(wait));
}
Status combine_nothing(Exchange& exchange, Nanos wait) {
  return exchange.combine(ConstMatrix(nullptr, DType::float32, 0, 8, 8),
                          Matrix{nullptr, DType::float32, 0, 8, 8}, Deadline::after(wait));
}

TEST(LateRank, IsNamedWithLayerAndPhaseInDispatch) {
  Cluster cluster(three_ranks());
  cluster.network().silence(2);
  cluster.run([&](int rank, Exchange& exchange) {
    if (rank == 2) return;
    const auto received = dispatch_nothing(exchange, 7, kShort);
    ASSERT_FALSE(received.ok());
    EXPECT_EQ(received.status().code(), Code::deadline_exceeded);
    EXPECT_THAT(received.status().message(),
                StartsWith("rank 2, dispatch of layer 7 (exchange 0 of epoch 1): late"));
    ASSERT_TRUE(exchange.blame().has_value());
    EXPECT_EQ(exchange.blame()->rank, 2);
    EXPECT_EQ(exchange.blame()->layer, 7);
    EXPECT_EQ(exchange.blame()->phase, Phase::dispatch);
    EXPECT_EQ(exchange.blame()->parts_missing, 1);
    EXPECT_THAT(exchange.blame()->reason, StartsWith("late: nothing arrived within "));

    // From here on everything is refused with the same reason, and nothing waits.
    EXPECT_EQ(dispatch_nothing(exchange, 8, kLong).status().message(), received.status().message());
    EXPECT_EQ(combine_nothing(exchange, kLong).message(), received.status().message());
    EXPECT_EQ(exchange.wake(2).message(), received.status().message());
    EXPECT_EQ(exchange.wait_for_step(2, Deadline::after(kLong)).status().message(),
              received.status().message());
    EXPECT_EQ(exchange.blame()->layer, 7);
  });
}

TEST(LateRank, IsNamedWithLayerAndPhaseInCombine) {
  Cluster cluster(three_ranks());
  std::latch dispatched(3);
  cluster.run([&](int rank, Exchange& exchange) {
    ASSERT_TRUE(dispatch_nothing(exchange, 3, kLong).ok());
    if (rank == 1) cluster.network().silence(1);
    dispatched.arrive_and_wait();
    if (rank == 1) return;
    const Status status = combine_nothing(exchange, kShort);
    EXPECT_EQ(status.code(), Code::deadline_exceeded);
    ASSERT_TRUE(exchange.blame().has_value());
    EXPECT_EQ(exchange.blame()->rank, 1);
    EXPECT_EQ(exchange.blame()->layer, 3);
    EXPECT_EQ(exchange.blame()->phase, Phase::combine);
  });
}

TEST(LostRank, IsNamedAtOnce) {
  Cluster cluster(three_ranks());
  cluster.run([&](int rank, Exchange& exchange) {
    if (rank == 0) return cluster.network().kill(0);
    const auto received = dispatch_nothing(exchange, 4, kLong);
    EXPECT_EQ(received.status().code(), Code::unavailable);
    ASSERT_TRUE(exchange.blame().has_value());
    EXPECT_EQ(exchange.blame()->rank, 0);
    EXPECT_EQ(exchange.blame()->layer, 4);
    EXPECT_EQ(exchange.blame()->reason, "connection lost");
  });
}

TEST(LostRank, EndsTheWaitForAStep) {
  Cluster cluster(three_ranks());
  auto exchange = cluster.open(1);
  cluster.network().kill(2);
  EXPECT_EQ(exchange->wait_for_step(2, Deadline::after(kLong)).status().code(), Code::unavailable);
  ASSERT_TRUE(exchange->blame().has_value());
  EXPECT_EQ(exchange->blame()->rank, 2);
}

TEST(EndOfEpoch, EndsAWaitAndBlamesNobody) {
  Cluster cluster(three_ranks());
  auto exchange = cluster.open(0);
  std::thread ender([&] { exchange->end_epoch(); });
  const auto received = dispatch_nothing(*exchange, 0, kLong);
  ender.join();
  EXPECT_EQ(received.status().code(), Code::aborted);
  EXPECT_THAT(received.status().message(), HasSubstr("epoch 1"));
  EXPECT_FALSE(exchange->blame().has_value());
  EXPECT_EQ(exchange->wait_for_step(2, Deadline::after(kLong)).status().code(), Code::aborted);
}

TEST(EndOfEpoch, StopsARankAlone) {
  const Shape shape = make_shape(1, 2, 1, 8, 4, DType::float32, true);
  auto exchange = Cluster(shape).open(0);
  std::thread ender([&] { exchange->end_epoch(); });
  EXPECT_EQ(exchange->wait_for_step(2, Deadline::after(kLong)).status().code(), Code::aborted);
  ender.join();
  EXPECT_EQ(dispatch_nothing(*exchange, 0, kLong).status().code(), Code::aborted);
}

TEST(WaitForStep, EndsByDeadlineAndNudge) {
  const Shape shape = make_shape(1, 2, 1, 8, 4, DType::float32, true);
  for (int ranks = 1; ranks <= 2; ++ranks) {
    Shape some = shape;
    some.ranks = ranks;
    Cluster cluster(some);
    auto exchange = cluster.open(0);
    const auto late = exchange->wait_for_step(2, Deadline::after(kShort));
    ASSERT_TRUE(late.ok());
    EXPECT_FALSE(*late);
    const auto ended_by_nudge = [&] {
      const Deadline deadline = Deadline::after(kLong);
      const auto begun = exchange->wait_for_step(2, deadline);
      return begun.ok() && !*begun && !deadline.expired();
    };
    // A nudge before the wait counts, once.
    exchange->nudge();
    EXPECT_TRUE(ended_by_nudge());
    const Deadline soon = Deadline::after(kShort);
    EXPECT_FALSE(exchange->wait_for_step(2, soon).value());
    EXPECT_TRUE(soon.expired());
    std::thread nudger([&] { exchange->nudge(); });
    EXPECT_TRUE(ended_by_nudge());
    nudger.join();
    EXPECT_FALSE(exchange->blame().has_value());
  }
}

TEST(WaitForStep, EndsByAWakeForThatStepOrALaterOne) {
  Cluster cluster(three_ranks());
  auto sleeper = cluster.open(0);
  auto other = cluster.open(1);
  auto third = cluster.open(2);
  ASSERT_TRUE(other->wake(3).ok());
  EXPECT_TRUE(sleeper->wait_for_step(3, Deadline::after(kLong)).value());
  // It is kept, and a later lower one does not take it back.
  ASSERT_TRUE(other->wake(2).ok());
  EXPECT_TRUE(sleeper->wait_for_step(3, Deadline::after(kLong)).value());
  EXPECT_TRUE(third->wait_for_step(2, Deadline::after(kLong)).value());
  // A step that is over wakes nobody.
  EXPECT_FALSE(sleeper->wait_for_step(4, Deadline::after(kShort)).value());
  std::thread waker([&] { EXPECT_TRUE(third->wake(4).ok()); });
  EXPECT_TRUE(sleeper->wait_for_step(4, Deadline::after(kLong)).value());
  waker.join();
}

TEST(WaitForStep, EndsByADispatchOfTheNextExchange) {
  Cluster cluster(three_ranks());
  cluster.run([&](int rank, Exchange& exchange) {
    // Rank 2 enters the step without a wake; the others follow.
    if (rank != 2) {
      EXPECT_TRUE(exchange.wait_for_step(1, Deadline::after(kLong)).value());
    }
    ASSERT_TRUE(dispatch_nothing(exchange, 0, kLong).ok());
    ASSERT_TRUE(combine_nothing(exchange, kLong).ok());
  });
}

TEST(Arguments, AreRefusedWithoutHarm) {
  const Shape shape = make_shape(1, 4, 2, 3, 2, DType::float32, true);
  auto exchange = Cluster(shape).open(0);
  const std::vector<float> x(6);
  const std::vector<float> weights(6);
  const auto refused = [&](const ConstMatrix& rows, std::vector<int32_t> experts, size_t weight_count) {
    const auto result = exchange->dispatch(0, rows, experts, std::span(weights).first(weight_count), {},
                                           Deadline::after(kLong));
    EXPECT_EQ(result.status().code(), Code::invalid_argument);
    return result.status().message();
  };
  const ConstMatrix two(x.data(), DType::float32, 2, 3, 3);
  const ConstMatrix three(x.data(), DType::float32, 3, 3, 3);
  EXPECT_THAT(refused(three, {0, 1, 2, 3, 0, 1}, 6), HasSubstr("3 tokens; this exchange takes 0 to 2"));
  EXPECT_THAT(refused(ConstMatrix(x.data(), DType::float32, 2, 2, 3), {0, 1, 2, 3}, 4),
              HasSubstr("x is (2, 2)"));
  EXPECT_THAT(refused(ConstMatrix(x.data(), DType::float32, 2, 3, 2), {0, 1, 2, 3}, 4),
              HasSubstr("stride 2"));
  EXPECT_THAT(refused(ConstMatrix(nullptr, DType::float32, 2, 3, 3), {0, 1, 2, 3}, 4),
              HasSubstr("x has 2 rows and no data"));
  EXPECT_THAT(refused(ConstMatrix(x.data(), DType::int32, 2, 3, 3), {0, 1, 2, 3}, 4),
              HasSubstr("x is int32"));
  EXPECT_THAT(refused(two, {0, 1, 2}, 4), HasSubstr("3 experts and 4 weights; both must be 4"));
  EXPECT_THAT(refused(two, {0, 1, 2, 3}, 3), HasSubstr("4 experts and 3 weights"));
  EXPECT_THAT(refused(two, {0, 1, 2, 4}, 4), HasSubstr("token 1 chose expert 4; there are experts 0 to 3"));
  EXPECT_THAT(refused(two, {0, -1, 2, 3}, 4), HasSubstr("token 0 chose expert -1"));
  EXPECT_THAT(refused(two, {0, 1, 3, 3}, 4), HasSubstr("token 1 chose expert 3 twice"));

  std::vector<float> out(6);
  const Matrix good_out{out.data(), DType::float32, 2, 3, 3};
  const std::vector<float> rows(12);
  const ConstMatrix pairs(rows.data(), DType::float32, 4, 3, 3);
  EXPECT_THAT(exchange->combine(pairs, good_out, Deadline::after(kLong)).message(),
              HasSubstr("combine_send() without dispatch_receive()"));
  const std::vector<int32_t> experts{0, 1, 2, 3};
  ASSERT_TRUE(
      exchange->dispatch(0, two, experts, std::span(weights).first(4), {}, Deadline::after(kLong)).ok());
  const auto answer = [&](const ConstMatrix& pair_rows, const Matrix& to) {
    return exchange->combine(pair_rows, to, Deadline::after(kLong));
  };
  EXPECT_THAT(answer(ConstMatrix(rows.data(), DType::float32, 3, 3, 3), good_out).message(),
              HasSubstr("pair_rows is (3, 3)"));
  EXPECT_THAT(answer(ConstMatrix(rows.data(), DType::bfloat16, 4, 3, 3), good_out).message(),
              HasSubstr("pair_rows is bfloat16; it must be float32"));
  const auto collect = [&](const Matrix& to) {
    return exchange->combine_receive(to, Deadline::after(kLong));
  };
  EXPECT_THAT(collect(good_out).message(), HasSubstr("combine_receive() without combine_send()"));
  ASSERT_TRUE(exchange->combine_send(pairs, Deadline::after(kLong)).ok());
  EXPECT_THAT(exchange->combine_send(pairs, Deadline::after(kLong)).message(),
              HasSubstr("combine_send() without dispatch_receive()"));
  EXPECT_THAT(collect(Matrix{out.data(), DType::float32, 1, 3, 3}).message(), HasSubstr("out is (1, 3)"));
  EXPECT_TRUE(collect(good_out).ok());
  EXPECT_FALSE(exchange->blame().has_value());
}

TEST(Open, RefusesAFabricThatDoesNotFit) {
  const Shape shape = three_ranks();
  Cluster cluster(shape);
  const auto open = [&](int rank, uint64_t epoch, std::unique_ptr<fabric::Fabric> fabric) {
    const auto result = Exchange::open(shape, cluster.placement(), rank, epoch, std::move(fabric));
    EXPECT_EQ(result.status().code(), Code::invalid_argument);
    return result.status().message();
  };
  EXPECT_THAT(open(0, 1, nullptr), HasSubstr("3 ranks without a fabric"));
  EXPECT_THAT(open(3, 1, cluster.network().join(2)), HasSubstr("rank is 3; it must be 0 to 2"));
  EXPECT_THAT(open(0, 1, cluster.network().join(2)), HasSubstr("on the fabric of rank 2"));
  EXPECT_THAT(open(0, 2, cluster.network().join(0)),
              HasSubstr("in epoch 2 on the fabric of rank 0 of 3 in epoch 1"));
}

TEST(Open, RefusesSlabsThatAreTooSmallWhenItMeetsThem) {
  const Shape shape = make_shape(2, 4, 2, 8, 4, DType::float32, true);
  FakeNetwork network({.ranks = 2, .slab_bytes = {32, 32}});
  const auto placement = Placement::contiguous(4, 2).value();
  auto exchange = Exchange::open(shape, placement, 0, 1, network.join(0)).value();
  const auto received = dispatch_nothing(*exchange, 0, kLong);
  EXPECT_EQ(received.status().code(), Code::internal);
  EXPECT_THAT(received.status().message(), HasSubstr("holds 32 bytes"));
}

}  // namespace
}  // namespace sluice::exchange::test
