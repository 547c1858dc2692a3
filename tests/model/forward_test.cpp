// Properties of the forward pass that need no oracle, on tiny random checkpoints, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "single_rank.h"
#include "support/expect_error.h"
#include "support/reference_backend.h"
#include "tiny_checkpoint.h"

namespace sluice::test {
namespace {

using nlohmann::json;

const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4};

std::vector<float> logits_of(const json& config, const WrittenTensors& tensors) {
  TemporaryDirectory directory;
  write_checkpoint(directory, config, tensors);
  SingleRank rank(directory.path(), make_reference_backend({.deterministic = true}));
  return rank.feed(kPrompt);
}

// One expert that every token must choose is a dense MLP with its weights.
TEST(Forward, ADenseLayerIsOneExpert) {
  const TinyShape shape{.experts = 1, .top_k = 1};
  WrittenTensors tensors = tiny_tensors(shape);
  json config = tiny_config(shape);
  const std::vector<float> with_experts = logits_of(config, tensors);
  for (const json& dense_layers : {json({0}), json({1}), json({0, 1})}) {
    WrittenTensors renamed = tensors;
    for (const int layer : dense_layers) {
      const std::string mlp = "model.layers." + std::to_string(layer) + ".mlp.";
      for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
        renamed[mlp + part + ".weight"] = renamed.at(mlp + "experts.0." + part + ".weight");
        renamed.erase(mlp + "experts.0." + part + ".weight");
      }
    }
    config["mlp_only_layers"] = dense_layers;
    EXPECT_EQ(logits_of(config, renamed), with_experts) << dense_layers;
  }
}

TEST(Forward, ATiedHeadIsTheEmbedding) {
  WrittenTensors tensors = tiny_tensors({});
  json config = tiny_config({});
  tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
  const std::vector<float> untied = logits_of(config, tensors);
  config["tie_word_embeddings"] = true;
  tensors["lm_head.weight"] = tiny_tensors({}).at("lm_head.weight");  // not looked at
  EXPECT_EQ(logits_of(config, tensors), untied);
}

// A position depends on those before it only, and on all of them.
TEST(Forward, IsCausal) {
  TemporaryDirectory directory;
  write_checkpoint(directory, tiny_config({}), tiny_tensors({}));
  SingleRank rank(directory.path(), make_reference_backend({.deterministic = true}));
  std::vector<int32_t> other = kPrompt;
  other[0] = 30;
  const std::vector<float> original = rank.feed(kPrompt);
  rank.reset();
  EXPECT_NE(rank.feed(other), original);
  rank.reset();
  std::vector<int32_t> longer = kPrompt;
  longer.push_back(11);
  rank.feed(longer);
  rank.reset();
  EXPECT_EQ(rank.feed(kPrompt), original) << "what lies behind it in the cache does not count";
}

class Refusal : public testing::Test {
 protected:
  Refusal() {
    write_checkpoint(directory_, tiny_config({}), tiny_tensors({}));
    checkpoint_ = checkpoint::Checkpoint::open(directory_.path());
    const auto config = value_or_throw(checkpoint::read_model_config(directory_.path()));
    const auto placement = value_or_throw(exchange::Placement::contiguous(config.experts, 1));
    model_ = value_or_throw(model::Model::load(
        *checkpoint_, config, {.placement = placement, .rank = 0, .max_tokens = 4}, *backend_));
    shape = {.ranks = 1, .experts = 4, .top_k = 2, .hidden = 16, .max_tokens = 4};
    kv = model_->kv_shape(2, 4);
  }

  Status forward() {
    const auto placement = value_or_throw(exchange::Placement::contiguous(shape.experts, 1));
    const auto exchange = value_or_throw(exchange::Exchange::open(shape, placement, 0, 1, nullptr));
    const auto cache = value_or_throw(backend_->make_kv_cache(kv));
    std::vector<float> memory(1024);
    const Matrix out{.data = memory.data(), .rows = logit_matrix_rows, .cols = 32, .stride = 32};
    const model::Batch batch{
        .tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = logit_rows, .flags = {}};
    return model_->forward(batch, *cache, *exchange, out, Deadline::after(seconds(10))).status();
  }

  std::vector<int32_t> tokens = {1, 2, 3};
  std::vector<int32_t> blocks = {1, 0};
  compute::Sequence sequence{.first_row = 0, .queries = 3, .start = 0, .blocks = blocks};
  std::vector<int64_t> logit_rows = {0, 2};
  int64_t logit_matrix_rows = 2;
  exchange::Shape shape;
  compute::KvShape kv;

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<compute::Backend> backend_ = make_reference_backend({});
  Result<checkpoint::Checkpoint> checkpoint_ = Status(Code::internal, "not opened");
  std::unique_ptr<model::Model> model_;
};

TEST_F(Refusal, NothingWhenAllIsRight) { EXPECT_EQ(forward().message(), ""); }

TEST_F(Refusal, TokensOutsideTheVocabulary) {
  for (const int32_t token : {-1, 32, std::numeric_limits<int32_t>::max()}) {
    tokens[1] = token;
    expect_error(forward(), Code::invalid_argument,
                 {"token", std::to_string(token).c_str(), "row 1", "0 to 31"});
  }
}

TEST_F(Refusal, MoreTokensThanRoom) {
  tokens.resize(5, 1);
  sequence.queries = 5;
  expect_error(forward(), Code::invalid_argument, {"5 tokens", "loaded for 4"});
}

TEST_F(Refusal, SequencesThatDoNotCoverTheTokens) {
  sequence.queries = 2;
  expect_error(forward(), Code::invalid_argument, {"cover is 2", "needs 3"});
  sequence.queries = 3;
  sequence.first_row = 1;
  expect_error(forward(), Code::invalid_argument, {"at row 1", "at row 0"});
  sequence.first_row = 0;
  sequence.start = -1;
  expect_error(forward(), Code::invalid_argument, {"position -1"});
}

TEST_F(Refusal, BlocksThatDoNotReachOrExist) {
  sequence.start = 6;
  expect_error(forward(), Code::invalid_argument, {"3 queries at position 6", "2 blocks hold 8"});
  sequence.start = std::numeric_limits<int64_t>::max() - 1;
  expect_error(forward(), Code::invalid_argument, {"hold 8"});
  sequence.start = 0;
  blocks[1] = 2;
  expect_error(forward(), Code::invalid_argument, {"block 2", "cache has 2"});
}

TEST_F(Refusal, LogitRowsThatDoNotAscendOrExist) {
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{0, 3}, {1, 1}, {2, 0}, {-1, 0}}) {
    logit_rows = rows;
    expect_error(forward(), Code::invalid_argument, {"logits of row"});
  }
  logit_rows = {0};
  expect_error(forward(), Code::invalid_argument, {"number of logit rows is 2", "needs 1"});
}

TEST_F(Refusal, AnExchangeOrCacheOfAnotherShape) {
  shape.hidden = 32;
  expect_error(forward(), Code::invalid_argument, {"row width is 32", "needs 16"});
  shape.hidden = 16;
  shape.max_tokens = 8;
  expect_error(forward(), Code::invalid_argument, {"max_tokens is 8", "needs 4"});
  shape.max_tokens = 4;
  kv.layers = 1;
  expect_error(forward(), Code::invalid_argument, {"number of layers is 1", "needs 2"});
}

}  // namespace
}  // namespace sluice::test
