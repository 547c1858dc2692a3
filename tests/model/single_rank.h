// A model on one rank and any back end, fed with one sequence: what tests against the oracles run on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compute/ops.h"
#include "exchange/exchange.h"
#include "model/model.h"

namespace sluice::test {

class SingleRank {
 public:
  static constexpr int kBlocks = 24;
  static constexpr int kBlockSize = 16;
  static constexpr int kMaxTokens = 160;

  // Throws what loading says.
  SingleRank(const std::string& directory, std::unique_ptr<compute::Backend> backend);

  const checkpoint::ModelConfig& config() const { return model_->config(); }
  model::Model& model() { return *model_; }

  // Forgets the sequence.
  void reset() { position_ = 0; }
  // Appends `tokens`, `chunk` a step, and returns the logits after the last.
  std::vector<float> feed(std::span<const int32_t> tokens, int chunk = kMaxTokens);
  // The greedy continuation of `prompt`, from an empty sequence.
  std::vector<int32_t> greedy(std::span<const int32_t> prompt, size_t tokens);

 private:
  std::vector<float> step(std::span<const int32_t> tokens);

  std::unique_ptr<compute::Backend> backend_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<exchange::Exchange> exchange_;
  std::unique_ptr<compute::KvCache> cache_;
  std::vector<int32_t> blocks_;  // not in order, as in a cache that has been used
  int64_t position_ = 0;
};

int32_t largest(std::span<const float> logits);

// The value, or a std::runtime_error with the Status's text.
template <class T>
T value_or_throw(Result<T> result);

}  // namespace sluice::test

#include <stdexcept>

template <class T>
T sluice::test::value_or_throw(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}
