// A rank put together from a checkpoint: what it fills in, what it refuses, and when ranks refuse each other.
#include "engine/rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/fingerprint.h"
#include "engine/local_ranks.h"
#include "harness.h"
#include "support/oracle.h"
#include "support/temporary_directory.h"

namespace sluice::engine {
namespace {

using ::testing::HasSubstr;

class RankTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto directory = test::oracle_directory("qwen3-moe-a-fp8");
    ASSERT_TRUE(directory.has_value()) << "tests/data/oracle/qwen3-moe-a-fp8 is not in the repository";
    settings_.model_directory = *directory;
    settings_.dtype = DType::float32;
    settings_.threads = 1;
    settings_.engine.max_num_seqs = 4;
  }
  std::string refusal(const RankSettings& settings) {
    const auto rank = Rank::load(settings, {});
    return rank.ok() ? "" : rank.status().message();
  }

  RankSettings settings_;
};

TEST_F(RankTest, FillsInWhatTheCheckpointSays) {
  const auto rank = Rank::load(settings_, {});
  ASSERT_TRUE(rank.ok()) << rank.status().message();
  const RankSettings& settings = (*rank)->settings();
  EXPECT_EQ(settings.engine.max_model_len, 512);
  EXPECT_EQ(settings.kv_blocks, 4 * 512 / 16);
  EXPECT_EQ(settings.engine.kv_blocks, settings.kv_blocks);
  EXPECT_EQ(settings.engine.eos_token_ids, std::vector<int32_t>{2});
  EXPECT_THAT((*rank)->description(), HasSubstr("8 of 8 experts, weights "));
  EXPECT_THAT((*rank)->description(), HasSubstr("KV 2048 tokens "));
  EXPECT_THAT((*rank)->fingerprint(), HasSubstr("dtype: float32\n"));
}

TEST_F(RankTest, TheCacheStaysWithinItsMemory) {
  // 3 layers x 2 (keys, values) x 2 heads x 64 x 4 bytes = 3072 a token, whatever the activations are.
  settings_.kv_memory_bytes = size_t{3072} * 16 * 50;
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    settings_.dtype = dtype;
    const auto rank = Rank::load(settings_, {});
    ASSERT_TRUE(rank.ok()) << rank.status().message();
    EXPECT_EQ((*rank)->settings().kv_blocks, 50);
    EXPECT_THAT((*rank)->description(), HasSubstr("KV 800 tokens 2.5 MB"));
  }
}

TEST_F(RankTest, RefusesWhatCannotWork) {
  RankSettings settings = settings_;
  settings.kv_memory_bytes = size_t{3072} * 16 * 31;
  EXPECT_EQ(refusal(settings),
            "the KV cache would have 31 blocks of 16 tokens (1.5 MB), and one sequence of max_model_len 512 "
            "takes 32 "
            "(1.6 MB); lower max_model_len to 496 or give the cache more");
  settings = settings_;
  settings.kv_blocks = 5;
  EXPECT_THAT(refusal(settings), HasSubstr("the KV cache would have 5 blocks"));
  settings = settings_;
  settings.engine.max_model_len = 513;
  EXPECT_EQ(
      refusal(settings),
      "max_model_len is 513; the model's positions end at 512 (max_position_embeddings in config.json)");
  settings = settings_;
  settings.ranks = 9;
  EXPECT_THAT(refusal(settings), HasSubstr("8 experts on 9 ranks"));
  settings = settings_;
  settings.rank = 1;
  EXPECT_EQ(refusal(settings), "rank 1 of 1; ranks count from 0 and there is at least one");
  settings = settings_;
  settings.dtype = DType::float8_e4m3;
  EXPECT_EQ(refusal(settings), "dtype is float8_e4m3; it must be float32 or bfloat16");
  settings = settings_;
  settings.model_directory = "/nowhere";
  EXPECT_THAT(refusal(settings), HasSubstr("/nowhere/config.json"));
}

TEST_F(RankTest, RanksThatDifferRefuseEachOtherByName) {
  fabric::InProcessHub hub(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int index = 0; index < 2; ++index) {
    threads.emplace_back([&, index] {
      RankSettings mine = settings_;
      mine.rank = index;
      mine.ranks = 2;
      mine.dtype = index == 0 ? DType::float32 : DType::bfloat16;
      const auto rank = Rank::load(mine, {});
      ASSERT_TRUE(rank.ok()) << rank.status().message();
      const auto bootstrap = hub.join(index);
      errors[static_cast<size_t>(index)] = (*rank)->open_exchange(1, *bootstrap).status().message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "ranks 0 and 1 differ: rank 0 has 'dtype: float32', rank 1 has 'dtype: bfloat16'; all ranks of "
              "a group "
              "must be equal here");
  }
}

TEST_F(RankTest, RanksAsThreadsGiveTheReferencesText) {
  const auto cases = test::read_oracle(settings_.model_directory);
  settings_.ranks = 2;
  settings_.threads = 0;
  const auto ranks = LocalRanks::load(settings_);
  ASSERT_TRUE(ranks.ok()) << ranks.status().message();
  for (uint64_t epoch = 1; epoch < 3; ++epoch) {
    const Status entered = (*ranks)->enter_epoch(epoch);
    ASSERT_TRUE(entered.ok()) << entered.message();
    for (size_t i = 0; i < cases.size(); ++i) {
      Listener listener;
      Request request = greedy_request(cases[i].input_ids, static_cast<int>(cases[i].greedy.size()));
      request.ignore_eos = true;
      ASSERT_TRUE((*ranks)->engine(static_cast<int>(i % 2)).submit(request, listener.sink()).ok());
      EXPECT_EQ(text_of(listener.wait()), cases[i].greedy);
    }
    (*ranks)->leave_epoch();
  }
}

TEST(Fingerprint, TheDigestSeesConfigHeadersAndData) {
  const auto source = test::oracle_directory("qwen3-moe-a-fp8");
  ASSERT_TRUE(source.has_value());
  const test::TemporaryDirectory copy;
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(*source + "/" + file, copy.path() + "/" + file);
    std::filesystem::permissions(copy.path() + "/" + file, std::filesystem::perms::owner_all);
  }
  const std::string original = checkpoint_digest(*source).value();
  EXPECT_THAT(original, HasSubstr("1766696 bytes in 1 file, "));
  EXPECT_EQ(checkpoint_digest(copy.path()).value(), original);
  const auto change = [&](const char* file, std::streamoff at) {
    std::fstream stream(copy.path() + "/" + file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const char byte = static_cast<char>(stream.get());
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ 1));
  };
  for (const auto& [file, at] : {std::pair<const char*, std::streamoff>{"config.json", 5},
                                 {"model.safetensors", 20},
                                 {"model.safetensors", 1766696 / 64 * 40 + 17}}) {
    change(file, at);
    EXPECT_NE(checkpoint_digest(copy.path()).value(), original) << file << " at " << at;
    change(file, at);
  }
  EXPECT_EQ(checkpoint_digest(copy.path()).value(), original);
  EXPECT_FALSE(checkpoint_digest("/nowhere").ok());
}

TEST(Fingerprint, ADifferenceNamesRanksAndValues) {
  EXPECT_TRUE(compare_fingerprints(std::vector<std::string>{"a: 1\nb: 2\n", "a: 1\nb: 2\n"}).ok());
  EXPECT_EQ(
      compare_fingerprints(std::vector<std::string>{"a: 1\nb: 2\n", "a: 1\nb: 2\n", "a: 1\nb: 3\n"})
          .message(),
      "ranks 0 and 2 differ: rank 0 has 'b: 2', rank 2 has 'b: 3'; all ranks of a group must be equal here");
  EXPECT_THAT(compare_fingerprints(std::vector<std::string>{"a: 1\n", ""}).message(),
              HasSubstr("rank 1 has 'nothing'"));
}

}  // namespace
}  // namespace sluice::engine
