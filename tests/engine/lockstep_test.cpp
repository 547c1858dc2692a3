// Several ranks: the same steps everywhere, idle and awake together, and epochs that end in the middle of a
// step.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "harness.h"

namespace sluice::engine {
namespace {

TEST(Lockstep, TheFirstStepCarriesACanaryOnEveryRank) {
  ToyCluster cluster(3);
  std::atomic<int> canaries{0};
  for (int rank = 0; rank < 3; ++rank) {
    cluster.model(rank).on_forward = [&](const model::Batch& batch) {
      if (batch.tokens.size() == 1) ++canaries;
    };
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(cluster.engine(rank).stats().ready);
  cluster.enter(5);
  cluster.wait_ready(5);
  EXPECT_EQ(canaries, 3);
  for (int rank = 0; rank < 3; ++rank) {
    const Stats stats = cluster.engine(rank).stats();
    EXPECT_TRUE(stats.ready);
    EXPECT_EQ(stats.epoch, 5U);
    EXPECT_EQ(stats.tokens_generated, 0U);
    EXPECT_EQ(cluster.engine(rank).report().provider, "fake");
  }
}

TEST(Lockstep, ACanaryThatIsNotANumberIsNotReadiness) {
  ToyCluster cluster(1);
  cluster.model().edit_logits = [](std::span<const int32_t>, std::span<float> logits) { logits[0] = NAN; };
  cluster.enter(1);
  cluster.wait_broken(1);
  EXPECT_FALSE(cluster.engine().stats().ready);
  EXPECT_EQ(cluster.blames()[0].reason,
            "the epoch's first token: the logit of token 0 is nan; every logit must be finite");
}

TEST(Lockstep, RanksWithoutWorkFollowTheOnesThatHaveSome) {
  ToyCluster cluster(4);
  cluster.enter(1);
  cluster.wait_ready(1);
  EXPECT_EQ(text_of(cluster.run(greedy_request({3, 1, 4}, 30), 2)), toy_text({3, 1, 4}, 30));
  EXPECT_EQ(cluster.hub().wakes(), 1) << "has_work keeps the ranks together, not wakes";
  cluster.leave();
  const uint64_t completed = cluster.hub().completed(0);
  EXPECT_GE(completed, 31U * kToyLayers);
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(cluster.hub().completed(rank), completed);
}

// Thousands of requests at random ranks and moments, with pauses in which all ranks fall asleep. A lost wake
// would leave a request waiting for a sleeping rank.
void random_load(int ranks, int requests, Wiring wiring) {
  ToyCluster cluster(ranks, toy_options(), wiring);
  std::vector<uint64_t> steps(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    cluster.model(rank).on_forward = [&steps, rank](const model::Batch&) {
      ++steps[static_cast<size_t>(rank)];
    };
  }
  cluster.enter(1);
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (int client = 0; client < 3; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(static_cast<uint32_t>(client));
      for (int i = 0; i < requests; ++i) {
        const auto prompt = toy_prompt(random(), 1 + static_cast<int>(random() % 5));
        const int tokens = 1 + static_cast<int>(random() % 3);
        const int rank = static_cast<int>(random() % static_cast<uint32_t>(ranks));
        const auto text = text_of(cluster.run(greedy_request(prompt, tokens), rank));
        right += text == toy_text(prompt, tokens) ? 1 : 0;
        if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 3 * requests);
  EXPECT_EQ(cluster.hub().timeouts(), 0);
  cluster.leave();
  for (const exchange::Blame& blame : cluster.blames()) EXPECT_EQ(blame.reason, "");
  for (int rank = 1; rank < ranks; ++rank)
    EXPECT_EQ(steps[static_cast<size_t>(rank)], steps[0]) << "rank " << rank;
}

TEST(Lockstep, NoWakeIsLostAmongTwoRanks) { random_load(2, 700, Wiring::fake); }
TEST(Lockstep, NoWakeIsLostAmongFourRanks) { random_load(4, 400, Wiring::fake); }
TEST(Lockstep, NoWakeIsLostOnOneRealExchange) { random_load(1, 700, Wiring::local); }
TEST(Lockstep, NoWakeIsLostOnTwoRealExchanges) { random_load(2, 700, Wiring::local); }
TEST(Lockstep, NoWakeIsLostOnFourRealExchanges) { random_load(4, 400, Wiring::local); }

TEST(Lockstep, LongAndShortRequestsOnRealExchanges) {
  ToyCluster cluster(4, toy_options(), Wiring::local);
  std::vector<Listener> listeners(24);
  const auto make = [](uint64_t i) {
    return greedy_request(toy_prompt(i, 1 + static_cast<int>(i * 5 % 70)), 1 + static_cast<int>(i * 3 % 40));
  };
  for (uint64_t i = 0; i < listeners.size(); ++i) {
    ASSERT_TRUE(cluster.engine(static_cast<int>(i % 4)).submit(make(i), listeners[i].sink()).ok());
  }
  for (uint64_t epoch = 1; epoch < 4; ++epoch) {
    cluster.enter(epoch);
    cluster.wait_ready(epoch);
    if (epoch < 3) cluster.leave();
  }
  for (uint64_t i = 0; i < listeners.size(); ++i) {
    const Request request = make(i);
    EXPECT_EQ(text_of(listeners[i].wait()), toy_text(request.prompt, request.max_tokens)) << i;
  }
}

TEST(Lockstep, APeerThatLeavesARealExchangeIsNamed) {
  Options options = toy_options();
  options.step_deadline = milliseconds(300);
  ToyCluster cluster(2, options, Wiring::local);
  cluster.enter(1);
  cluster.wait_ready(1);
  cluster.engine(1).leave_epoch();
  Listener listener;
  ASSERT_TRUE(cluster.engine(0).submit(greedy_request({1, 2}, 5), listener.sink()).ok());
  while (cluster.blames()[0].reason.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(cluster.blames()[0].rank, 1);
  cluster.enter(2);
  EXPECT_EQ(text_of(listener.wait()), toy_text({1, 2}, 5));
}

TEST(Lockstep, ABrokenStepLeavesNoTraceAndRequestsGoOn) {
  for (uint64_t seq = 0; seq < 24; ++seq) {
    ToyCluster cluster(2);
    // Rank 1 fails at a combine of an early or middle step, with requests of both ranks under way.
    cluster.hub().break_at(1, seq);
    std::vector<Listener> listeners(4);
    for (uint64_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(cluster.engine(static_cast<int>(i % 2))
                      .submit(greedy_request(toy_prompt(i, 20), 15), listeners[i].sink())
                      .ok());
    }
    cluster.enter(1);
    cluster.wait_broken(1);
    for (const exchange::Blame& blame : cluster.blames()) EXPECT_EQ(blame.rank, 1);
    EXPECT_FALSE(cluster.engine(0).stats().ready);
    EXPECT_EQ(cluster.engine(0).report().provider, "");
    cluster.enter(2);
    cluster.wait_ready(2);
    for (uint64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(text_of(listeners[i].wait()), toy_text(toy_prompt(i, 20), 15))
          << "seq " << seq << " request " << i;
    }
  }
}

TEST(Lockstep, LeavingAnEpochIsNotABreakAndRequestsGoOn) {
  ToyCluster cluster(2);
  std::vector<Listener> listeners(2);
  cluster.enter(1);
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(cluster.engine(static_cast<int>(i))
                    .submit(greedy_request(toy_prompt(i, 5), 200), listeners[i].sink())
                    .ok());
  }
  for (uint64_t epoch = 2; epoch < 12; ++epoch) {
    for (auto& listener : listeners) listener.wait_for(epoch * 5);
    cluster.leave();
    cluster.enter(epoch);
  }
  for (uint64_t i = 0; i < 2; ++i) EXPECT_EQ(text_of(listeners[i].wait()), toy_text(toy_prompt(i, 5), 200));
  for (const exchange::Blame& blame : cluster.blames()) EXPECT_EQ(blame.rank, -1);
}

TEST(Lockstep, AnIdleRankLeavesAtOnce) {
  ToyCluster cluster(2);
  for (uint64_t epoch = 1; epoch < 50; ++epoch) {
    cluster.enter(epoch);
    if (epoch % 2 == 0) cluster.wait_ready(epoch);
    cluster.leave();
  }
  EXPECT_EQ(cluster.hub().timeouts(), 0);
}

TEST(Lockstep, ALatePeerBreaksTheEpochByItsDeadline) {
  Options options = toy_options();
  options.step_deadline = milliseconds(50);
  ToyCluster cluster(2, options);
  cluster.engine(0).enter_epoch(cluster.hub().open(0, 3));
  while (cluster.blames()[0].reason.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(cluster.blames()[0].reason, "a rank is late");
}

}  // namespace
}  // namespace sluice::engine
