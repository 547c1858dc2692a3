// Qwen3-MoE, as transformers' Qwen3MoeForCausalLM computes it: grouped-query attention without biases, each
// query and key head normalised before the rotary embedding; every layer's MLP dense or a set of experts.
// Rows are float32 within the rank; the activation type is what travels to the experts (scratch.h says why).
#pragma once

#include <memory>
#include <vector>

#include "model/model.h"
#include "model/scratch.h"

namespace sluice::model {

class Qwen3Moe final : public Model {
 public:
  static Result<std::unique_ptr<Model>> load(const checkpoint::Checkpoint& checkpoint,
                                             const checkpoint::ModelConfig& config, const Placed& placed,
                                             compute::Backend& backend);

  const checkpoint::ModelConfig& config() const override { return config_; }
  compute::KvShape kv_shape(int blocks, int block_size) const override {
    return kv_shape_for(config_, blocks, block_size);
  }
  size_t weight_bytes() const override { return weight_bytes_; }
  Result<Outcome> forward(const Batch& batch, compute::KvCache& cache, exchange::Exchange& exchange,
                          Matrix logits, Deadline deadline) override;

 private:
  struct Layer {
    std::unique_ptr<compute::Buffer> attention_norm;  // (hidden,)
    std::unique_ptr<compute::Weight> q;               // (query_heads x head_dim, hidden)
    std::unique_ptr<compute::Weight> k;               // (kv_heads x head_dim, hidden)
    std::unique_ptr<compute::Weight> v;               // (kv_heads x head_dim, hidden)
    std::unique_ptr<compute::Weight> o;               // (hidden, query_heads x head_dim)
    std::unique_ptr<compute::Buffer> q_norm;          // (head_dim,)
    std::unique_ptr<compute::Buffer> k_norm;          // (head_dim,)
    std::unique_ptr<compute::Buffer> mlp_norm;        // (hidden,)
    // A layer with experts has these,
    std::unique_ptr<compute::Weight> router;    // (experts, hidden)
    std::unique_ptr<compute::Experts> experts;  // this rank's
    // a dense one these.
    std::unique_ptr<compute::Weight> gate;  // (intermediate, hidden)
    std::unique_ptr<compute::Weight> up;    // (intermediate, hidden)
    std::unique_ptr<compute::Weight> down;  // (hidden, intermediate)
  };

  Qwen3Moe(const checkpoint::ModelConfig& config, compute::Backend& backend)
      : config_(config), backend_(backend) {}
  // The rows that this rank's experts give for what arrived.
  Result<ConstMatrix> apply_experts(int index, const exchange::Received& received, DType wire);
  Result<Layer> load_layer(class Loader& loader, int index, const Placed& placed) const;
  const compute::Weight& head() const { return config_.tie_word_embeddings ? *embedding_ : *head_; }

  checkpoint::ModelConfig config_;
  compute::Backend& backend_;
  std::unique_ptr<compute::Weight> embedding_;  // (vocab, hidden)
  std::vector<Layer> layers_;
  std::unique_ptr<compute::Buffer> final_norm_;  // (hidden,)
  std::unique_ptr<compute::Weight> head_;        // (vocab, hidden); null when tied to the embedding
  Scratch scratch_;
  size_t weight_bytes_ = 0;
};

}  // namespace sluice::model
