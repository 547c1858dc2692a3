// config.json and generation_config.json of a Hugging Face checkpoint, in older and newer spellings, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace sluice::checkpoint {

enum class Architecture { qwen3_moe };
// As config.json's `architectures` spells it: "Qwen3MoeForCausalLM".
std::string_view architecture_name(Architecture architecture);

// FP8 weights with one float32 scale per block of (rows, cols): quant_method "fp8", weight_block_size.
struct BlockQuantization {
  int block_rows = 128;
  int block_cols = 128;
};

struct ModelConfig {
  Architecture architecture = Architecture::qwen3_moe;
  int vocab_size = 0;
  int hidden_size = 0;
  int layers = 0;
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int intermediate_size = 0;  // of dense MLP layers
  int max_position_embeddings = 0;
  float rms_norm_eps = 1e-6F;
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  DType dtype = DType::bfloat16;  // of unquantized weights, as the file says (dtype / torch_dtype)

  int experts = 0;  // num_experts / num_local_experts
  int top_k = 0;    // num_experts_per_tok
  int moe_intermediate_size = 0;
  bool norm_topk_prob = false;
  int decoder_sparse_step = 1;
  std::vector<int> mlp_only_layers;
  std::optional<BlockQuantization> quantization;

  // Qwen3-MoE's rule: layer i has experts unless it is listed in mlp_only_layers, if (i + 1) is a multiple of
  // decoder_sparse_step.
  bool is_moe_layer(int layer) const;
  int moe_layers() const;
};

struct GenerationConfig {
  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> bos_token_id;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int> top_k;
  bool do_sample = false;
};

// Unknown architecture, unsupported rope scaling, sliding window in use, attention bias, another activation
// than silu, sizes that do not divide: refused, naming file, field, value and what is supported.
Result<ModelConfig> read_model_config(const std::string& directory);
// A missing file is an empty config (eos then comes from config.json).
Result<GenerationConfig> read_generation_config(const std::string& directory);

}  // namespace sluice::checkpoint
