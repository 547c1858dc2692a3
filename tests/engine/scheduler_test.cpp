#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace sluice::engine {
namespace {

std::unique_ptr<RequestState> request_of(uint64_t id, int prompt, int max_tokens = 4) {
  auto request = std::make_unique<RequestState>();
  request->id = id;
  request->request.prompt.assign(static_cast<size_t>(prompt), 1);
  request->request.max_tokens = max_tokens;
  request->tokens = request->request.prompt;
  return request;
}

// Commits a plan and gives each completed request one token; those at their end are removed.
void play(Scheduler& scheduler, const std::vector<Part>& parts) {
  Scheduler::commit(parts);
  for (const Part& part : parts) {
    if (!part.completes) continue;
    const bool last = part.request->ends_with_next();
    part.request->tokens.push_back(1);
    if (last) scheduler.remove(part.request->id);
  }
}

TEST(BlockPool, GivesAllOrNothingAndTakesBack) {
  BlockPool pool(4, 8);
  EXPECT_EQ(pool.canary_block(), 4);
  std::vector<int32_t> a;
  std::vector<int32_t> b;
  EXPECT_TRUE(pool.extend(a, 17));
  EXPECT_EQ(a.size(), 3U);
  EXPECT_TRUE(pool.extend(a, 24));
  EXPECT_EQ(a.size(), 3U);
  EXPECT_FALSE(pool.extend(b, 9));
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(pool.free(), 1);
  pool.release(a);
  EXPECT_EQ(pool.free(), 4);
}

TEST(Scheduler, PutsDecodesFirstAndCutsPrefillToTheBudget) {
  BlockPool blocks(100, 4);
  Scheduler scheduler(8, blocks);
  scheduler.add(request_of(1, 3));
  play(scheduler, scheduler.plan(10));  // 1 is in decode now
  scheduler.add(request_of(2, 25));
  scheduler.add(request_of(3, 2));
  std::vector<Part> parts = scheduler.plan(10);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].request->id, 1U);
  EXPECT_EQ(parts[0].queries, 1);
  EXPECT_EQ(parts[1].request->id, 2U);
  EXPECT_EQ(parts[1].queries, 9);
  EXPECT_FALSE(parts[1].completes);
  play(scheduler, parts);
  play(scheduler, scheduler.plan(10));
  parts = scheduler.plan(10);  // 7 tokens of 2 are left, then 3 fits too
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[1].queries, 7);
  EXPECT_TRUE(parts[1].completes);
  EXPECT_EQ(parts[2].request->id, 3U);
  EXPECT_EQ(parts[2].queries, 2);
}

TEST(Scheduler, AnUncommittedPlanIsMadeAgain) {
  BlockPool blocks(100, 4);
  Scheduler scheduler(8, blocks);
  scheduler.add(request_of(1, 30));
  const auto first = scheduler.plan(16);
  const auto second = scheduler.plan(16);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].queries, first[0].queries);
  EXPECT_EQ(second[0].request->computed, 0);
}

TEST(Scheduler, AdmitsOnlyWhatTheBlocksCanHold) {
  BlockPool blocks(4, 4);
  Scheduler scheduler(8, blocks);
  scheduler.add(request_of(1, 7));
  scheduler.add(request_of(2, 7));  // would need 2 of the 2 that are left, and one is kept back
  scheduler.plan(100);
  EXPECT_EQ(scheduler.running(), 1);
  EXPECT_EQ(scheduler.waiting(), 1);
}

TEST(Scheduler, PreemptsTheYoungestAndKeepsItsOutput) {
  BlockPool blocks(6, 2);
  Scheduler scheduler(8, blocks);
  scheduler.add(request_of(1, 2, 9));
  scheduler.add(request_of(2, 2, 9));
  bool preempted = false;
  for (int step = 0; step < 40 && !scheduler.empty(); ++step) {
    const auto parts = scheduler.plan(100);
    ASSERT_FALSE(parts.empty());
    EXPECT_EQ(parts[0].request->id, scheduler.running() > 0 && step < 9 ? 1U : 2U);
    if (scheduler.waiting() == 1) preempted = true;
    play(scheduler, parts);
  }
  EXPECT_TRUE(preempted);
  EXPECT_TRUE(scheduler.empty());
  EXPECT_EQ(blocks.free(), 6);
}

TEST(Scheduler, WorkAfterCountsWhatMustGoOn) {
  BlockPool blocks(100, 4);
  Scheduler scheduler(8, blocks);
  scheduler.add(request_of(1, 3, 2));
  auto parts = scheduler.plan(100);
  EXPECT_TRUE(scheduler.work_after(parts));
  play(scheduler, parts);
  parts = scheduler.plan(100);
  EXPECT_FALSE(scheduler.work_after(parts));  // its second token is its last
  scheduler.add(request_of(2, 3, 1));
  EXPECT_TRUE(scheduler.work_after(parts));
}

// Random arrivals, removals and steps under a tiny cache: blocks are never shared or lost, the budget holds,
// and everything ends.
TEST(Scheduler, RandomLoadKeepsTheInvariants) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int block_size = 1 + static_cast<int>(random() % 5);
    const int total = 20 / block_size + static_cast<int>(random() % 10) + 1;
    BlockPool blocks(total, block_size);
    Scheduler scheduler(1 + static_cast<int>(random() % 6), blocks);
    uint64_t next_id = 1;
    int idle_steps = 0;
    for (int step = 0; step < 300; ++step) {
      if (step < 100 && random() % 3 == 0) {
        const int length = 1 + static_cast<int>(random() % 12);
        scheduler.add(request_of(next_id++, length, 1 + static_cast<int>(random() % 8)));
      }
      if (random() % 16 == 0) scheduler.remove(random() % next_id);
      const int budget = 1 + static_cast<int>(random() % 12);
      const auto parts = scheduler.plan(budget);
      int64_t tokens = 0;
      std::set<int32_t> held;
      for (const Part& part : parts) {
        tokens += part.queries;
        EXPECT_GE(static_cast<int64_t>(part.request->blocks.size()) * block_size,
                  part.request->computed + part.queries);
        for (const int32_t block : part.request->blocks) EXPECT_TRUE(held.insert(block).second);
      }
      EXPECT_LE(tokens, budget);
      idle_steps = parts.empty() && !scheduler.empty() ? idle_steps + 1 : 0;
      EXPECT_EQ(idle_steps, 0);
      play(scheduler, parts);
    }
    EXPECT_TRUE(scheduler.empty());
    EXPECT_EQ(blocks.free(), total);
  }
}

}  // namespace
}  // namespace sluice::engine
