#include "single_rank.h"

#include <algorithm>

namespace sluice::test {

SingleRank::SingleRank(const std::string& directory, std::unique_ptr<compute::Backend> backend)
    : backend_(std::move(backend)) {
  const auto checkpoint = value_or_throw(checkpoint::Checkpoint::open(directory));
  const auto config = value_or_throw(checkpoint::read_model_config(directory));
  const auto placement = value_or_throw(exchange::Placement::contiguous(config.experts, 1));
  model_ = value_or_throw(model::Model::load(
      checkpoint, config, {.placement = placement, .rank = 0, .max_tokens = kMaxTokens}, *backend_));
  const exchange::Shape shape{.ranks = 1,
                              .experts = config.experts,
                              .top_k = config.top_k,
                              .hidden = config.hidden_size,
                              .max_tokens = kMaxTokens,
                              .wire = backend_->options().activations,
                              .exact = backend_->options().deterministic};
  exchange_ = value_or_throw(exchange::Exchange::open(shape, placement, 0, 1, nullptr));
  cache_ = value_or_throw(backend_->make_kv_cache(model_->kv_shape(kBlocks, kBlockSize)));
  for (int i = 0; i < kBlocks; ++i) blocks_.push_back(i * 5 % kBlocks);
}

std::vector<float> SingleRank::step(std::span<const int32_t> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  const compute::Sequence sequence{.first_row = 0, .queries = count, .start = position_, .blocks = blocks_};
  const int64_t last_row = count - 1;
  std::vector<float> logits(static_cast<size_t>(config().vocab_size));
  const Matrix out{.data = logits.data(),
                   .dtype = DType::float32,
                   .rows = 1,
                   .cols = config().vocab_size,
                   .stride = config().vocab_size};
  const model::Batch batch{
      .tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = {&last_row, 1}, .flags = {}};
  value_or_throw(model_->forward(batch, *cache_, *exchange_, out, Deadline::after(seconds(60))));
  position_ += count;
  return logits;
}

std::vector<float> SingleRank::feed(std::span<const int32_t> tokens, int chunk) {
  std::vector<float> logits;
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(chunk)) {
    logits = step(tokens.subspan(begin, std::min(static_cast<size_t>(chunk), tokens.size() - begin)));
  }
  return logits;
}

std::vector<int32_t> SingleRank::greedy(std::span<const int32_t> prompt, size_t tokens) {
  reset();
  std::vector<int32_t> continuation;
  std::vector<float> logits = feed(prompt);
  while (continuation.size() < tokens) {
    continuation.push_back(largest(logits));
    if (continuation.size() < tokens) logits = feed({&continuation.back(), 1});
  }
  return continuation;
}

int32_t largest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace sluice::test
