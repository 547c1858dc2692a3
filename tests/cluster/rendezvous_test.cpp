// The meetings of an epoch, without a network.
#include "cluster/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr EpochId kEpoch{1, 4};

class RendezvousTest : public ::testing::Test {
 protected:
  using Answer = std::optional<Result<std::vector<std::string>>>;

  void visit(int rank, uint64_t round, std::string value, Answer& answer, std::string name = "addresses",
             EpochId epoch = kEpoch, Nanos deadline = 100) {
    rendezvous_.visit({.epoch = epoch,
                       .rank = rank,
                       .round = round,
                       .name = std::move(name),
                       .value = std::move(value),
                       .deadline = deadline,
                       .patience = seconds(30)},
                      [&answer](Result<std::vector<std::string>> values) {
                        ASSERT_FALSE(answer.has_value()) << "answered twice";
                        answer = std::move(values);
                      });
  }

  Rendezvous rendezvous_;
  Answer a_, b_, c_;
};

TEST_F(RendezvousTest, EverybodyGetsEverybodysValueInTheMembersOrder) {
  rendezvous_.open(kEpoch, {0, 2, 5});
  visit(5, 0, "five", a_);
  visit(0, 0, "zero", b_);
  EXPECT_FALSE(a_ || b_);
  visit(2, 0, std::string("t\0wo", 4), c_);
  for (const Answer& answer : {a_, b_, c_}) {
    ASSERT_TRUE(answer && answer->ok());
    EXPECT_THAT(answer->value(), ElementsAre("zero", std::string("t\0wo", 4), "five"));
  }
  EXPECT_FALSE(rendezvous_.next_deadline());
}

TEST_F(RendezvousTest, RoundsDoNotMix) {
  rendezvous_.open(kEpoch, {0, 1});
  visit(0, 0, "a0", a_);
  visit(1, 1, "b1", b_, "keys");
  EXPECT_FALSE(a_ || b_);
  visit(1, 0, "b0", c_);
  EXPECT_THAT(a_->value(), ElementsAre("a0", "b0"));
  EXPECT_FALSE(b_);
}

TEST_F(RendezvousTest, MissingRanksAreNamedAfterTheDeadline) {
  rendezvous_.open(kEpoch, {0, 1, 2, 3});
  visit(0, 0, "", a_, "addresses", kEpoch, 100);
  visit(2, 0, "", b_, "addresses", kEpoch, 200);
  EXPECT_EQ(rendezvous_.next_deadline(), 100);
  rendezvous_.expire(99);
  EXPECT_FALSE(a_);
  rendezvous_.expire(100);
  ASSERT_TRUE(a_ && b_) << "a round that one cannot wait for any longer is over for all";
  EXPECT_EQ(a_->status().code(), Code::deadline_exceeded);
  EXPECT_EQ(a_->status().message(), "ranks 1, 3 are missing from 'addresses' of epoch 1.4 after 30 s");
}

TEST_F(RendezvousTest, EndOfTheEpochAbortsItsRounds) {
  rendezvous_.open(kEpoch, {0, 1});
  visit(0, 0, "", a_);
  rendezvous_.close("rank 1 was lost: killed by signal 9");
  ASSERT_TRUE(a_);
  EXPECT_EQ(a_->status().code(), Code::aborted);
  EXPECT_THAT(a_->status().message(), HasSubstr("killed by signal 9"));
  visit(1, 0, "", b_);
  EXPECT_EQ(b_->status().code(), Code::aborted);
  EXPECT_THAT(b_->status().message(), HasSubstr("killed by signal 9"));
}

TEST_F(RendezvousTest, RoundsOfOtherEpochsAreAborted) {
  rendezvous_.open(kEpoch, {0, 1});
  visit(0, 0, "", a_, "addresses", {1, 3});
  EXPECT_EQ(a_->status().code(), Code::aborted);
  visit(0, 0, "", b_);
  rendezvous_.open({1, 5}, {0, 1});
  EXPECT_EQ(b_->status().code(), Code::aborted);
}

TEST_F(RendezvousTest, StrangersSecondVisitsAndOtherNamesAreRefused) {
  rendezvous_.open(kEpoch, {0, 1});
  visit(2, 0, "", a_);
  EXPECT_EQ(a_->status().code(), Code::invalid_argument);
  Answer first;
  visit(0, 0, "", first);
  visit(0, 0, "", b_);
  EXPECT_THAT(b_->status().message(), HasSubstr("came twice"));
  visit(1, 0, "", c_, "keys");
  EXPECT_THAT(c_->status().message(), HasSubstr("'addresses' for rank 0 and 'keys' for rank 1"));
  EXPECT_FALSE(first) << "the round goes on for who came rightly";
}

}  // namespace
}  // namespace sluice::cluster
