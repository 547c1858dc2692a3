// `sluice check` on a small real model, without its command line: results, and an end by Ctrl-C.
#include "cli/check_run.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "cli/interrupt.h"
#include "support/oracle.h"

namespace sluice::cli {
namespace {

class CheckRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto directory = test::oracle_directory("qwen3-moe-a-fp8");
    ASSERT_TRUE(directory.has_value()) << "tests/data/oracle/qwen3-moe-a-fp8 is not in the repository";
    settings_.model_directory = *directory;
    settings_.dtype = DType::float32;
    settings_.ranks = 2;
    auto cases = read_reference(*directory + "/reference.json");
    ASSERT_TRUE(cases.ok()) << cases.status().message();
    cases_ = std::move(cases).value();
  }

  engine::RankSettings settings_;
  std::vector<ReferenceCase> cases_;
};

TEST_F(CheckRunTest, TheOraclePasses) {
  CheckRun run(cases_);
  const Status status = run.run(settings_);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(run.reports().size(), 2U);
  for (size_t i = 0; i < cases_.size(); ++i) {
    const Verdict verdict = judge(cases_[i], run.observed()[i], 1e-4);
    EXPECT_EQ(verdict.failure, "") << "case " << i + 1;
    EXPECT_EQ(verdict.agreed, cases_[i].greedy.size());
    EXPECT_EQ(verdict.prompt_logprobs_error.has_value(), !cases_[i].prompt_logprobs.empty());
  }
}

// The hash is of the logits' bits: the same run gives it again, another reference prompt does not.
TEST_F(CheckRunTest, TheHashTellsRunsApart) {
  settings_.deterministic = true;
  const auto hashes = [&](int ranks) {
    settings_.ranks = ranks;
    CheckRun run(cases_);
    EXPECT_TRUE(run.run(settings_).ok());
    std::vector<uint64_t> all;
    for (const Observed& observed : run.observed()) all.push_back(observed.logits_hash);
    return all;
  };
  const auto one = hashes(1);
  EXPECT_EQ(hashes(2), one);
  EXPECT_NE(one[0], one[1]);
  cases_[0].prompt[0] ^= 1;
  const auto other = hashes(1);
  EXPECT_NE(other[0], one[0]);
  EXPECT_EQ(other[1], one[1]);
}

TEST_F(CheckRunTest, AnInterruptEndsItCleanly) {
  CheckRun run(cases_);
  Status status;
  std::thread worker([&] { status = run.run(settings_); });
  run.interrupt();
  worker.join();
  EXPECT_EQ(status.code(), Code::cancelled);
}

TEST_F(CheckRunTest, AModelThatCannotBeLoadedIsAnError) {
  settings_.ranks = 9;
  CheckRun run(cases_);
  EXPECT_NE(run.run(settings_).message().find("8 experts on 9 ranks"), std::string::npos);
}

// In a thread of its own, so that the test program keeps its signal mask.
TEST(Interrupt, GivesTheSignalOrTheEnd) {
  std::thread([] {
    Interrupt interrupt;
    pthread_kill(pthread_self(), SIGINT);
    EXPECT_EQ(interrupt.wait(), SIGINT);
    pthread_kill(pthread_self(), SIGTERM);
    EXPECT_EQ(interrupt.wait(), SIGTERM);
    interrupt.done();
    EXPECT_EQ(interrupt.wait(), 0);
    EXPECT_EQ(interrupt.wait(), 0);
  }).join();
}

}  // namespace
}  // namespace sluice::cli
