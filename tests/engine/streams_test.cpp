// Real models on real ranks: with `deterministic`, what a request says does not depend on what else runs, on
// how many ranks its experts lie, or on what happens to the epoch under it.
#include <gtest/gtest.h>

#include <optional>

#include "engine/local_ranks.h"
#include "harness.h"
#include "support/oracle.h"

namespace sluice::engine {
namespace {

RankSettings settings_for(const std::string& directory, int ranks, DType dtype) {
  RankSettings settings;
  settings.model_directory = directory;
  settings.ranks = ranks;
  settings.dtype = dtype;
  settings.deterministic = true;
  settings.engine.max_num_seqs = 16;
  settings.engine.max_num_batched_tokens = 96;
  settings.engine.max_model_len = 256;
  return settings;
}

// Prompts of many lengths cut from the references', and as many lengths of output.
std::vector<Request> many_requests(const std::string& directory, size_t count) {
  const auto cases = test::read_oracle(directory);
  std::vector<Request> requests;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> prompt = cases[i % cases.size()].input_ids;
    const auto& more = cases[(i + 1) % cases.size()].greedy;
    prompt.insert(prompt.end(), more.begin(), more.begin() + static_cast<std::ptrdiff_t>(i % more.size()));
    requests.push_back(greedy_request(std::move(prompt), 8 + static_cast<int>(i * 7 % 25)));
    requests.back().ignore_eos = true;
    requests.back().want_logits = true;
  }
  return requests;
}

struct Said {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // after the prompt, and of the last token
  bool operator==(const Said&) const = default;
};

Said said(const std::vector<Output>& outputs) {
  Said out{text_of(outputs), {}};
  for (const Output* output : {&outputs.front(), &outputs.back()}) {
    out.logits.insert(out.logits.end(), output->logits.begin(), output->logits.end());
  }
  return out;
}

std::unique_ptr<LocalRanks> start(const RankSettings& settings) {
  auto ranks = LocalRanks::load(settings);
  EXPECT_TRUE(ranks.ok()) << ranks.status().message();
  if (!ranks.ok()) return nullptr;
  const Status entered = (*ranks)->enter_epoch(1);
  EXPECT_TRUE(entered.ok()) << entered.message();
  return std::move(ranks).value();
}

std::vector<Said> one_by_one(LocalRanks& ranks, const std::vector<Request>& requests) {
  std::vector<Said> all;
  for (size_t i = 0; i < requests.size(); ++i) {
    Listener listener;
    EXPECT_TRUE(ranks.engine(static_cast<int>(i) % ranks.ranks()).submit(requests[i], listener.sink()).ok());
    all.push_back(said(listener.wait()));
  }
  return all;
}

std::vector<Said> together(LocalRanks& ranks, const std::vector<Request>& requests, int changes_of_epoch) {
  std::vector<Listener> listeners(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(
        ranks.engine(static_cast<int>(i) % ranks.ranks()).submit(requests[i], listeners[i].sink()).ok());
  }
  for (int change = 0; change < changes_of_epoch; ++change) {
    listeners[0].wait_for(static_cast<size_t>(change) + 1);
    ranks.leave_epoch();
    EXPECT_TRUE(ranks.enter_epoch(static_cast<uint64_t>(change) + 2).ok());
  }
  std::vector<Said> all;
  for (auto& listener : listeners) all.push_back(said(listener.wait()));
  return all;
}

class StreamsTest : public ::testing::TestWithParam<DType> {};

TEST_P(StreamsTest, ThirtyTwoTogetherEqualOneByOneOnAnyRanks) {
  const std::string directory = test::demo_directory();
  const std::vector<Request> requests = many_requests(directory, 32);
  std::vector<Said> alone;
  for (const int count : {1, 2, 4}) {
    const auto ranks = start(settings_for(directory, count, GetParam()));
    ASSERT_NE(ranks, nullptr);
    if (alone.empty()) alone = one_by_one(*ranks, requests);
    const std::vector<Said> crowd = together(*ranks, requests, 3);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(crowd[i].tokens, alone[i].tokens) << count << " ranks, request " << i;
      EXPECT_TRUE(crowd[i] == alone[i])
          << count << " ranks, request " << i << ": logits differ in their bits";
    }
  }
}

TEST_P(StreamsTest, PreemptionAndChunkSizeDoNotChangeTheBits) {
  const std::string directory = test::demo_directory();
  const std::vector<Request> requests = many_requests(directory, 16);
  RankSettings settings = settings_for(directory, 2, GetParam());
  const auto roomy = start(settings);
  ASSERT_NE(roomy, nullptr);
  const std::vector<Said> expected = together(*roomy, requests, 0);
  settings.engine.max_num_batched_tokens = 23;
  settings.kv_blocks = 16;  // one sequence of 256, where 16 want to run
  const auto tight = start(settings);
  ASSERT_NE(tight, nullptr);
  const std::vector<Said> found = together(*tight, requests, 0);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(found[i] == expected[i]) << "request " << i;
}

INSTANTIATE_TEST_SUITE_P(Types, StreamsTest, ::testing::Values(DType::float32, DType::bfloat16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace sluice::engine
