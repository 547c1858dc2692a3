// A model without weights, for tests of the engine: the next token is a hash of the whole context, read back
// through the block tables, so any mistake in paging, chunking, preemption or commit changes the text. It
// takes part in exchanges like a real one and checks what they bring back.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "compute/ops.h"
#include "engine/engine.h"
#include "model/model.h"

namespace sluice::engine {

inline constexpr int kToyVocab = 97;
inline constexpr int kToyLayers = 2;
inline constexpr int kToyHidden = 8;
inline constexpr int kToyExperts = 8;
inline constexpr int kToyTopK = 2;

exchange::Shape toy_shape(int ranks, int max_tokens);

// What the toy model says after `context`.
std::vector<float> toy_logits(std::span<const int32_t> context);
// The greedy continuation, computed without an engine.
std::vector<int32_t> toy_text(std::vector<int32_t> context, int tokens);

// Only make_kv_cache() works: the toy needs nothing else.
std::unique_ptr<compute::Backend> make_toy_backend();

class ToyModel final : public model::Model {
 public:
  ToyModel(int rank, int ranks);

  const checkpoint::ModelConfig& config() const override { return config_; }
  compute::KvShape kv_shape(int blocks, int block_size) const override;
  size_t weight_bytes() const override { return 0; }
  Result<model::Outcome> forward(const model::Batch& batch, compute::KvCache& cache,
                                 exchange::Exchange& exchange, Matrix logits, Deadline deadline) override;

  // Called at the start of each forward(), with the batch.
  std::function<void(const model::Batch&)> on_forward;
  // Changes a row of logits before it is given back.
  std::function<void(std::span<const int32_t> context, std::span<float> logits)> edit_logits;
  std::atomic<int> largest_batch{0};  // tokens

 private:
  Status run_experts(int layer, const model::Batch& batch, exchange::Exchange& exchange, Deadline deadline,
                     exchange::StepFlags& any);

  checkpoint::ModelConfig config_;
  exchange::Placement placement_;
  int rank_;
};

}  // namespace sluice::engine
