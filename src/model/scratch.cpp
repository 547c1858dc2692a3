#include "model/scratch.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::model {

Result<Matrix> Scratch::matrix(int64_t rows, int64_t cols, compute::Backend& backend) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, cols, &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<int64_t>(sizeof(float)), &bytes)) {
    return Status(Code::resource_exhausted,
                  fmt::format("scratch memory of {} rows by {} floats is more than any machine has; lower "
                              "--max-num-batched-tokens",
                              rows, cols));
  }
  auto buffer = backend.allocate(static_cast<size_t>(bytes));
  if (!buffer.ok()) {
    return buffer.status().with_context(fmt::format("scratch memory of {} rows by {} floats", rows, cols));
  }
  buffers_.push_back(std::move(buffer).value());
  return Matrix{
      .data = buffers_.back()->data(), .dtype = DType::float32, .rows = rows, .cols = cols, .stride = cols};
}

Result<Scratch> Scratch::allocate(const checkpoint::ModelConfig& config, const Placed& placed,
                                  compute::Backend& backend) {
  const int64_t tokens = placed.max_tokens;
  const int64_t query_width = int64_t{config.query_heads} * config.head_dim;
  const int64_t kv_width = int64_t{config.kv_heads} * config.head_dim;
  Scratch made;
  made.round_tokens = placed.round_tokens;
  const auto take = [&](Matrix& target, int64_t rows, int64_t cols) -> Status {
    SLUICE_ASSIGN_OR_RETURN(target, made.matrix(rows, cols, backend));
    return {};
  };
  SLUICE_RETURN_IF_ERROR(take(made.hidden, tokens, config.hidden_size));
  SLUICE_RETURN_IF_ERROR(take(made.normed, tokens, config.hidden_size));
  SLUICE_RETURN_IF_ERROR(take(made.q, tokens, query_width));
  SLUICE_RETURN_IF_ERROR(take(made.k, tokens, kv_width));
  SLUICE_RETURN_IF_ERROR(take(made.v, tokens, kv_width));
  SLUICE_RETURN_IF_ERROR(take(made.attended, tokens, query_width));
  SLUICE_RETURN_IF_ERROR(take(made.delta, tokens, config.hidden_size));
  if (config.moe_layers() < config.layers) {
    SLUICE_RETURN_IF_ERROR(take(made.gate, tokens, config.intermediate_size));
    SLUICE_RETURN_IF_ERROR(take(made.up, tokens, config.intermediate_size));
    SLUICE_RETURN_IF_ERROR(take(made.inner, tokens, config.intermediate_size));
  }
  if (config.moe_layers() > 0) {
    const auto local = static_cast<int>(placed.placement.experts_of(placed.rank).size());
    int64_t pairs = 0;
    if (__builtin_mul_overflow(int64_t{placed.placement.ranks()} * std::min(config.top_k, local),
                               int64_t{placed.round_tokens}, &pairs)) {
      return Status(Code::resource_exhausted, "more received rows than 64 bits can count");
    }
    SLUICE_RETURN_IF_ERROR(take(made.router_logits, tokens, config.experts));
    SLUICE_RETURN_IF_ERROR(take(made.pair_rows, pairs, config.hidden_size));
    made.chosen.resize(static_cast<size_t>(tokens * config.top_k));
    made.weights.resize(made.chosen.size());
  }
  return made;
}

}  // namespace sluice::model
