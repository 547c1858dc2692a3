// The four calls of an exchange by themselves: two exchanges under way, ranks that one thread drives by
// turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "cluster.h"

namespace sluice::exchange::test {
namespace {

using testing::HasSubstr;

const Nanos kLong = seconds(60);

ConstMatrix rows_of(const Tokens& tokens, int hidden) {
  return {tokens.x.data(), DType::float32, tokens.count, hidden, hidden};
}

// One rank as a state machine over `exchanges` exchanges: it does whatever it can without waiting, in an
// order that `random` picks, with up to two exchanges under way.
class Turns {
 public:
  Turns(Cluster& cluster, int rank, int exchanges, uint64_t seed)
      : cluster_(cluster), rank_(rank), exchanges_(exchanges), random_(seed), exchange_(cluster.open(rank)) {}

  bool done() const { return collected_ == exchanges_; }
  int most_under_way() const { return most_under_way_; }
  Exchange& exchange() { return *exchange_; }

  // False when it could only wait.
  bool turn() {
    std::vector<void (Turns::*)()> steps;
    if (sent_ < exchanges_ && sent_ < collected_ + 2) steps.push_back(&Turns::send);
    if (received_ < sent_ && exchange_->receivable(Phase::dispatch)) steps.push_back(&Turns::receive);
    if (answered_ < received_) steps.push_back(&Turns::answer);
    if (collected_ < answered_ && exchange_->receivable(Phase::combine)) steps.push_back(&Turns::collect);
    if (steps.empty()) return false;
    (this->*steps[random_() % steps.size()])();
    most_under_way_ = std::max(most_under_way_, sent_ - collected_);
    return true;
  }

 private:
  // Already expired: what receivable() promised must be there.
  static Deadline at_once() { return Deadline::after(0); }

  void send() {
    const Shape& shape = cluster_.shape();
    const int count = static_cast<int>(random_() % static_cast<uint64_t>(shape.max_tokens + 1));
    batches_.push_back(draw_tokens(random_, shape, count, static_cast<Load>(sent_ % 3)));
    const Tokens& tokens = batches_.back();
    const Status status =
        exchange_->dispatch_send(sent_++, rows_of(tokens, shape.hidden), tokens.experts, tokens.weights,
                                 {.has_work = rank_ == 0}, Deadline::after(kLong));
    ASSERT_TRUE(status.ok()) << status.message();
  }

  void receive() {
    auto received = exchange_->dispatch_receive(at_once());
    ASSERT_TRUE(received.ok()) << received.status().message();
    EXPECT_TRUE(received->any.has_work);
    arrived_.push_back(*received);
    ++received_;
  }

  void answer() {
    const Shape& shape = cluster_.shape();
    const Received received = arrived_.front();
    arrived_.pop_front();
    results_.push_back(apply_experts(received, shape, cluster_.placement().experts_of(rank_)));
    const ConstMatrix rows(results_.back().data(), DType::float32, received.pairs(), shape.hidden,
                           shape.hidden);
    const Status status = exchange_->combine_send(rows, Deadline::after(kLong));
    ASSERT_TRUE(status.ok()) << status.message();
    ++answered_;
  }

  void collect() {
    const Shape& shape = cluster_.shape();
    const Tokens& tokens = batches_.front();
    std::vector<float> out(tokens.x.size());
    const Status status = exchange_->combine_receive(
        Matrix{out.data(), DType::float32, tokens.count, shape.hidden, shape.hidden}, at_once());
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(bits_of(out), bits_of(expected_result(shape, cluster_.placement(), tokens)))
        << "rank " << rank_ << ", exchange " << collected_;
    batches_.pop_front();
    results_.pop_front();
    ++collected_;
  }

  Cluster& cluster_;
  const int rank_;
  const int exchanges_;
  std::mt19937_64 random_;
  std::unique_ptr<Exchange> exchange_;
  std::deque<Tokens> batches_;
  std::deque<Received> arrived_;
  std::deque<std::vector<float>> results_;
  int sent_ = 0;
  int received_ = 0;
  int answered_ = 0;
  int collected_ = 0;
  int most_under_way_ = 0;
};

class SplitPhases : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Modes, SplitPhases, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "exact" : "reduced"; });

TEST_P(SplitPhases, OneThreadDrivesAllRanksWithTwoExchangesUnderWay) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Shape shape = make_shape(4, 9, 3, 20, 5, DType::bfloat16, GetParam());
    Cluster cluster(shape, seed);
    std::vector<std::unique_ptr<Turns>> ranks;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      ranks.push_back(std::make_unique<Turns>(cluster, rank, 60, seed * 100 + static_cast<uint64_t>(rank)));
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
