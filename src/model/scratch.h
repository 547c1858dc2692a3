// The memory that a forward pass works in: allocated once, for the largest step, and reused by every layer.
//
// All of it is float32, with bfloat16 activations too: those are what the exchange carries and the experts
// read. A router chooses by a threshold, so a row whose last two candidates nearly tie falls to either side
// by one rounding before it, and then computes with other experts. Rounding what attention and router read
// moved the logits of one oracle's prompt by 54 % (qwen3-moe-a-fp8, a gap of 0.0006 in the first layer).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/matrix.h"
#include "checkpoint/config.h"
#include "compute/ops.h"
#include "model/model.h"

namespace sluice::model {

struct Scratch {
  static Result<Scratch> allocate(const checkpoint::ModelConfig& config, const Placed& placed,
                                  compute::Backend& backend);

  // (tokens, ...)
  Matrix hidden;                // (, hidden): the residual stream
  Matrix normed;                // (, hidden)
  Matrix q;                     // (, query_heads x head_dim)
  Matrix k;                     // (, kv_heads x head_dim)
  Matrix v;                     // (, kv_heads x head_dim)
  Matrix attended;              // (, query_heads x head_dim)
  Matrix delta;                 // (, hidden): what attention or an MLP adds to the residual stream
  Matrix gate;                  // (, intermediate). Dense layers
  Matrix up;                    // (, intermediate)
  Matrix inner;                 // (, intermediate)
  Matrix router_logits;         // (, experts). Layers with experts
  std::vector<int32_t> chosen;  // (, top_k), host
  std::vector<float> weights;   // (, top_k), host
  int round_tokens = 0;         // of one rank in one exchange
  // (received pairs, hidden): each rank may send a round's tokens, each to every expert here
  // that it may choose.
  Matrix pair_rows;

 private:
  Result<Matrix> matrix(int64_t rows, int64_t cols, compute::Backend& backend);

  std::vector<std::unique_ptr<compute::Buffer>> buffers_;
};

}  // namespace sluice::model
