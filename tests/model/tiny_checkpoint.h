// A tiny random Qwen3-MoE checkpoint in memory, to be changed before it is written.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "support/safetensors_writer.h"
#include "support/temporary_directory.h"

namespace sluice::test {

struct TinyShape {
  int vocab = 32;
  int hidden = 16;
  int layers = 2;
  int query_heads = 4;
  int kv_heads = 2;
  int head_dim = 8;
  int experts = 4;
  int top_k = 2;
  int inter = 12;  // of experts and of dense layers
};

// config.json: every layer has experts, the head is not tied.
nlohmann::json tiny_config(const TinyShape& shape);
// All tensors of that configuration, float32, from a fixed seed.
WrittenTensors tiny_tensors(const TinyShape& shape);
void write_checkpoint(const TemporaryDirectory& directory, const nlohmann::json& config,
                      const WrittenTensors& tensors);

}  // namespace sluice::test
