#include "fabric/tcp_bootstrap.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice::fabric {
namespace {

using Gathered = Result<std::vector<std::string>>;

class TcpBootstraps : public testing::Test {
 protected:
  explicit TcpBootstraps(int ranks = 3) : ranks_(ranks) {
    auto listener = listen_tcp("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok()) << listener.status().message();
    port_ = *port_of(*listener);
    server_ = std::make_unique<BootstrapServer>(std::move(*listener), ranks);
  }

  Result<std::unique_ptr<Bootstrap>> connect(int rank, int ranks) {
    return connect_bootstrap("127.0.0.1", port_, rank, ranks, Deadline::after(seconds(20)));
  }

  // What each of these ranks gets when they all gather at the same time.
  std::vector<Gathered> gather(std::vector<std::unique_ptr<Bootstrap>>& members,
                               const std::vector<std::string>& names, Nanos patience) {
    std::vector<Gathered> results(members.size(), Gathered(internal_error("not asked")));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < members.size(); ++i) {
      threads.emplace_back([&, i] {
        results[i] =
            members[i]->all_gather(names[i], "value " + std::to_string(i), Deadline::after(patience));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  std::vector<std::unique_ptr<Bootstrap>> connect_first(int count) {
    std::vector<std::unique_ptr<Bootstrap>> members;
    for (int rank = 0; rank < count; ++rank) {
      auto member = connect(rank, ranks_);
      EXPECT_TRUE(member.ok()) << member.status().message();
      members.push_back(std::move(*member));
    }
    return members;
  }

  const int ranks_;
  uint16_t port_ = 0;
  std::unique_ptr<BootstrapServer> server_;
};

void expect_error(const Gathered& result, const std::string& text) {
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find(text), std::string::npos) << result.status().message();
}

TEST_F(TcpBootstraps, EveryRankGetsEveryValueInRankOrder) {
  auto members = connect_first(3);
  for (int round = 0; round < 20; ++round) {
    for (const Gathered& result : gather(members, {"a", "a", "a"}, seconds(20))) {
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(*result, (std::vector<std::string>{"value 0", "value 1", "value 2"}));
    }
  }
}

TEST_F(TcpBootstraps, ValuesMayHoldAnyBytes) {
  auto members = connect_first(3);
  std::string odd("3:a\0b\n", 6);
  odd += std::string(1 << 20, '\xff');
  std::vector<std::thread> threads;
  for (auto& member : members) {
    threads.emplace_back([&] {
      const auto result = member->all_gather("odd", odd, Deadline::after(seconds(20)));
      EXPECT_TRUE(result.ok() && *result == std::vector<std::string>(3, odd));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TcpBootstraps, ARankThatNeverComesIsNamed) {
  auto members = connect_first(2);
  for (const Gathered& result : gather(members, {"keys", "keys"}, milliseconds(100))) {
    expect_error(result, "rank 2 is missing from 'keys'");
  }
}

TEST_F(TcpBootstraps, ARankThatWentAwayFailsTheOthersAtOnce) {
  auto members = connect_first(3);
  members.pop_back();
  for (const Gathered& result : gather(members, {"keys", "keys"}, seconds(600))) {
    expect_error(result, "rank 2 went away before 'keys'");
  }
}

TEST_F(TcpBootstraps, RanksThatGatherDifferentThingsAreToldSo) {
  auto members = connect_first(3);
  for (const Gathered& result : gather(members, {"keys", "keys", "addresses"}, seconds(20))) {
    expect_error(result, "'addresses'");
    expect_error(result, "'keys'");
  }
}

// The third rank comes when the other two have had their answer already.
TEST_F(TcpBootstraps, ARankThatComesAfterTheQuarrelIsToldItToo) {
  auto members = connect_first(3);
  auto late = std::move(members.back());
  members.pop_back();
  for (const Gathered& result : gather(members, {"keys", "addresses"}, seconds(20))) {
    expect_error(result, "'addresses'");
  }
  const auto result = late->all_gather("keys", "value", Deadline::after(seconds(600)));
  expect_error(result, "'addresses'");
  expect_error(result, "'keys'");
}

TEST_F(TcpBootstraps, AnotherNumberOfRanksIsRefusedWithBoth) {
  const auto member = connect(1, 8);
  ASSERT_FALSE(member.ok());
  EXPECT_NE(member.status().message().find("started for 8 ranks, the first node for 3"), std::string::npos)
      << member.status().message();
}

TEST_F(TcpBootstraps, TheSameRankTwiceIsRefused) {
  auto members = connect_first(1);
  const auto again = connect(0, 3);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().message().find("rank 0 is here already"), std::string::npos)
      << again.status().message();
}

TEST_F(TcpBootstraps, GarbageIsAnsweredAndHarmsNobody) {
  auto garbage = connect_tcp("127.0.0.1", port_, Deadline::after(seconds(20)));
  ASSERT_TRUE(garbage.ok());
  ASSERT_TRUE(send_frame(garbage->get(), "GET / HTTP/1.1", Deadline::after(seconds(20))).ok());
  auto members = connect_first(3);
  for (const Gathered& result : gather(members, {"a", "a", "a"}, seconds(20))) {
    EXPECT_TRUE(result.ok()) << result.status().message();
  }
}

}  // namespace
}  // namespace sluice::fabric
