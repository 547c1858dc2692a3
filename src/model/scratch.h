// The memory that a forward pass works in: allocated once, for the largest step, and reused by every layer.
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

  // (tokens, ...). "activation" is the back end's activation type.
  Matrix hidden;                // (, hidden) float32: the residual stream
  Matrix normed;                // (, hidden) activation
  Matrix q;                     // (, query_heads x head_dim) float32
  Matrix k;                     // (, kv_heads x head_dim) float32
  Matrix v;                     // (, kv_heads x head_dim) float32
  Matrix attended;              // (, query_heads x head_dim) activation
  Matrix delta;                 // (, hidden) float32: what attention or an MLP adds to the residual stream
  Matrix gate;                  // (, intermediate) float32. Dense layers
  Matrix up;                    // (, intermediate) float32
  Matrix inner;                 // (, intermediate) activation
  Matrix router_logits;         // (, experts) float32. Layers with experts
  std::vector<int32_t> chosen;  // (, top_k), host
  std::vector<float> weights;   // (, top_k), host
  // (received pairs, hidden) float32: each rank may send all its tokens, each to every expert here that it
  // may choose.
  Matrix pair_rows;

 private:
  Result<Matrix> matrix(int64_t rows, int64_t cols, DType dtype, compute::Backend& backend);

  std::vector<std::unique_ptr<compute::Buffer>> buffers_;
};

}  // namespace sluice::model
