#include "checkpoint/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "checkpoint/fields.h"

namespace sluice::checkpoint {
namespace {

// Larger than any model, small enough that products of two of them and a token count fit 64 bits.
constexpr int kMostVocabulary = 1 << 24;
constexpr int kMostWidth = 1 << 20;
constexpr int kMostLayers = 1 << 12;
constexpr int kMostHeads = 1 << 12;
constexpr int kMostHeadDim = 1 << 12;
constexpr int kMostExperts = 1 << 16;

struct KnownArchitecture {
  Architecture architecture;
  std::string_view name;        // of `architectures`
  std::string_view model_type;  // used when `architectures` is absent
};
constexpr KnownArchitecture kArchitectures[] = {
    {Architecture::qwen3_moe, "Qwen3MoeForCausalLM", "qwen3_moe"},
};

std::string known_architectures() {
  std::string names;
  for (const KnownArchitecture& known : kArchitectures) {
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  return names;
}

Result<Architecture> read_architecture(const Fields& fields) {
  SLUICE_ASSIGN_OR_RETURN(Field field, fields.find({"architectures"}));
  const bool by_type = field.value == nullptr;
  if (by_type) {
    SLUICE_ASSIGN_OR_RETURN(field, fields.find({"model_type"}));
    if (field.value == nullptr) field.name = "architectures";
  } else if (!field.value->is_array() || field.value->size() != 1) {
    return fields.wrong(field, "it must be a list of one name; Sluice knows " + known_architectures());
  }
  if (field.value != nullptr) {
    const nlohmann::json& name = by_type ? *field.value : field.value->front();
    for (const KnownArchitecture& known : kArchitectures) {
      if (name == (by_type ? known.model_type : known.name)) return known.architecture;
    }
  }
  return fields.wrong(field, "Sluice knows " + known_architectures(), Code::unimplemented);
}

// Refuses a field whose value would change what is computed, unless it has the one value that is supported.
Status require(const Fields& fields, const char* name, const nlohmann::json& supported) {
  SLUICE_ASSIGN_OR_RETURN(const Field field, fields.find({name}));
  if (field.value == nullptr || *field.value == supported) return {};
  return fields.wrong(field, "Sluice supports only " + json_text(supported), Code::unimplemented);
}

Status read_sizes(const Fields& fields, ModelConfig& config) {
  SLUICE_ASSIGN_OR_RETURN(config.vocab_size, fields.integer({"vocab_size"}, 1, kMostVocabulary));
  SLUICE_ASSIGN_OR_RETURN(config.hidden_size, fields.integer({"hidden_size"}, 1, kMostWidth));
  SLUICE_ASSIGN_OR_RETURN(config.layers, fields.integer({"num_hidden_layers"}, 1, kMostLayers));
  SLUICE_ASSIGN_OR_RETURN(config.query_heads, fields.integer({"num_attention_heads"}, 1, kMostHeads));
  SLUICE_ASSIGN_OR_RETURN(config.kv_heads, fields.integer({"num_key_value_heads"}, 1, kMostHeads));
  SLUICE_ASSIGN_OR_RETURN(config.max_position_embeddings,
                          fields.integer({"max_position_embeddings"}, 1, std::numeric_limits<int>::max()));
  SLUICE_ASSIGN_OR_RETURN(const Field kv_heads, fields.find({"num_key_value_heads"}));
  if (config.query_heads % config.kv_heads != 0) {
    return fields.wrong(kv_heads, fmt::format("it must divide num_attention_heads, {}", config.query_heads));
  }
  SLUICE_ASSIGN_OR_RETURN(const Field head_dim, fields.find({"head_dim"}));
  if (head_dim.value == nullptr && config.hidden_size % config.query_heads != 0) {
    return fields.wrong(head_dim,
                        fmt::format("without it num_attention_heads, {}, must divide hidden_size, {}",
                                    config.query_heads, config.hidden_size));
  }
  SLUICE_ASSIGN_OR_RETURN(config.head_dim, fields.integer({"head_dim"}, 1, kMostHeadDim,
                                                          config.hidden_size / config.query_heads));
  if (config.head_dim % 2 != 0) {
    return fields.wrong(head_dim, fmt::format("a head has {} elements; rotary embedding needs an even number",
                                              config.head_dim));
  }
  return {};
}

Status read_numerics(const Fields& fields, ModelConfig& config) {
  SLUICE_ASSIGN_OR_RETURN(const double eps, fields.number({"rms_norm_eps"}, {.above = 0, .max = 1}, 1e-6));
  config.rms_norm_eps = static_cast<float>(eps);
  SLUICE_ASSIGN_OR_RETURN(config.tie_word_embeddings, fields.boolean({"tie_word_embeddings"}, false));
  SLUICE_ASSIGN_OR_RETURN(std::string dtype, fields.text({"dtype", "torch_dtype"}, "bfloat16"));
  if (dtype.starts_with("torch.")) dtype.erase(0, 6);
  if (dtype == "float32") {
    config.dtype = DType::float32;
  } else if (dtype == "bfloat16") {
    config.dtype = DType::bfloat16;
  } else {
    SLUICE_ASSIGN_OR_RETURN(const Field field, fields.find({"dtype", "torch_dtype"}));
    return fields.wrong(field, "Sluice supports \"bfloat16\" and \"float32\"", Code::unimplemented);
  }
  return {};
}

// Older files: rope_theta and rope_scaling. Newer: rope_parameters, which holds both.
Status read_rope(const Fields& fields, ModelConfig& config) {
  constexpr Range kTheta{.above = 0, .max = 1e12};
  SLUICE_ASSIGN_OR_RETURN(config.rope_theta, fields.number({"rope_theta"}, kTheta, config.rope_theta));
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    SLUICE_ASSIGN_OR_RETURN(const std::optional<Fields> rope, fields.object({name}));
    if (!rope) continue;
    SLUICE_ASSIGN_OR_RETURN(config.rope_theta, rope->number({"rope_theta"}, kTheta, config.rope_theta));
    SLUICE_RETURN_IF_ERROR(require(*rope, "rope_type", "default"));
    SLUICE_RETURN_IF_ERROR(require(*rope, "type", "default"));
    SLUICE_RETURN_IF_ERROR(require(*rope, "partial_rotary_factor", 1.0));
  }
  return require(fields, "partial_rotary_factor", 1.0);
}

Status read_experts(const Fields& fields, ModelConfig& config) {
  SLUICE_ASSIGN_OR_RETURN(config.experts,
                          fields.integer({"num_experts", "num_local_experts"}, 1, kMostExperts));
  SLUICE_ASSIGN_OR_RETURN(config.top_k, fields.integer({"num_experts_per_tok"}, 1, kMostExperts));
  SLUICE_ASSIGN_OR_RETURN(const Field top_k, fields.find({"num_experts_per_tok"}));
  if (config.top_k > config.experts) {
    return fields.wrong(top_k, fmt::format("there are {} experts to choose from", config.experts));
  }
  SLUICE_ASSIGN_OR_RETURN(config.moe_intermediate_size,
                          fields.integer({"moe_intermediate_size"}, 1, kMostWidth));
  SLUICE_ASSIGN_OR_RETURN(config.norm_topk_prob, fields.boolean({"norm_topk_prob"}, false));
  SLUICE_ASSIGN_OR_RETURN(config.decoder_sparse_step,
                          fields.integer({"decoder_sparse_step"}, 1, std::numeric_limits<int>::max(), 1));
  SLUICE_ASSIGN_OR_RETURN(config.mlp_only_layers, fields.integers({"mlp_only_layers"}, kMostLayers));
  if (config.moe_layers() == config.layers) return {};  // nobody reads it, so it may be absent
  SLUICE_ASSIGN_OR_RETURN(config.intermediate_size, fields.integer({"intermediate_size"}, 1, kMostWidth));
  return {};
}

Status read_quantization(const Fields& fields, ModelConfig& config) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<Fields> quantization, fields.object({"quantization_config"}));
  if (!quantization) return {};
  SLUICE_ASSIGN_OR_RETURN(const Field method, quantization->find({"quant_method"}));
  if (method.value == nullptr || *method.value != "fp8") {
    return quantization->wrong(method, "Sluice supports only \"fp8\" with weight_block_size",
                               Code::unimplemented);
  }
  SLUICE_RETURN_IF_ERROR(require(*quantization, "fmt", "e4m3"));
  SLUICE_RETURN_IF_ERROR(require(*quantization, "activation_scheme", "dynamic"));
  SLUICE_ASSIGN_OR_RETURN(const Field block, quantization->find({"weight_block_size"}));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> sizes,
                          quantization->integers({"weight_block_size"}, kMostWidth));
  if (sizes.size() != 2 || sizes[0] == 0 || sizes[1] == 0) {
    return quantization->wrong(block, "it must be [rows, columns] of a block, such as [128, 128]");
  }
  config.quantization = BlockQuantization{.block_rows = sizes[0], .block_cols = sizes[1]};
  return {};
}

}  // namespace

std::string_view architecture_name(Architecture architecture) {
  for (const KnownArchitecture& known : kArchitectures) {
    if (known.architecture == architecture) return known.name;
  }
  return "unknown";
}

bool ModelConfig::is_moe_layer(int layer) const {
  const bool listed =
      std::find(mlp_only_layers.begin(), mlp_only_layers.end(), layer) != mlp_only_layers.end();
  return !listed && (layer + 1) % decoder_sparse_step == 0;
}

int ModelConfig::moe_layers() const {
  int count = 0;
  for (int layer = 0; layer < layers; ++layer) count += is_moe_layer(layer) ? 1 : 0;
  return count;
}

Result<ModelConfig> read_model_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  SLUICE_ASSIGN_OR_RETURN(const nlohmann::json json, read_json_file(path));
  if (!json.is_object()) {
    return invalid_argument(fmt::format("{}: it holds {}; it must be a JSON object", path, json_text(json)));
  }
  const Fields fields(json, path);
  ModelConfig config;
  SLUICE_ASSIGN_OR_RETURN(config.architecture, read_architecture(fields));
  SLUICE_RETURN_IF_ERROR(read_sizes(fields, config));
  SLUICE_RETURN_IF_ERROR(read_numerics(fields, config));
  SLUICE_RETURN_IF_ERROR(read_rope(fields, config));
  SLUICE_RETURN_IF_ERROR(read_experts(fields, config));
  SLUICE_RETURN_IF_ERROR(read_quantization(fields, config));
  SLUICE_RETURN_IF_ERROR(require(fields, "hidden_act", "silu"));
  SLUICE_RETURN_IF_ERROR(require(fields, "attention_bias", false));
  SLUICE_RETURN_IF_ERROR(require(fields, "use_sliding_window", false));
  return config;
}

}  // namespace sluice::checkpoint
