#include "model/model.h"

#include <fmt/format.h>

#include "model/qwen3_moe.h"

namespace sluice::model {

Result<std::unique_ptr<Model>> Model::load(const checkpoint::Checkpoint& checkpoint,
                                           const checkpoint::ModelConfig& config, const Placed& placed,
                                           compute::Backend& backend) {
  if (placed.placement.experts() != config.experts) {
    return invalid_argument(fmt::format("the placement covers {} experts, but config.json says {}",
                                        placed.placement.experts(), config.experts));
  }
  if (placed.rank < 0 || placed.rank >= placed.placement.ranks()) {
    return invalid_argument(fmt::format("rank {} of {} ranks; it must be from 0 to {}", placed.rank,
                                        placed.placement.ranks(), placed.placement.ranks() - 1));
  }
  if (placed.max_tokens < 1) {
    return invalid_argument(
        fmt::format("max_tokens is {}; a step needs room for at least 1", placed.max_tokens));
  }
  if (placed.round_tokens < 1 || placed.round_tokens > placed.max_tokens) {
    return invalid_argument(fmt::format("round_tokens is {}; an exchange has room for 1 to {} (max_tokens)",
                                        placed.round_tokens, placed.max_tokens));
  }
  switch (config.architecture) {
    case checkpoint::Architecture::qwen3_moe:
      return Qwen3Moe::load(checkpoint, config, placed, backend);
  }
  return internal_error("an architecture that the configuration reader knows has no model");
}

compute::KvShape Model::kv_shape_for(const checkpoint::ModelConfig& config, int blocks, int block_size) {
  // float32 with bfloat16 activations too, for the reason that scratch.h gives: a rounded key sways a router.
  return {.layers = config.layers,
          .blocks = blocks,
          .block_size = block_size,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .dtype = DType::float32};
}

}  // namespace sluice::model
