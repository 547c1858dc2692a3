#include "tiny_checkpoint.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

namespace sluice::test {

nlohmann::json tiny_config(const TinyShape& shape) {
  return {{"architectures", {"Qwen3MoeForCausalLM"}},
          {"vocab_size", shape.vocab},
          {"hidden_size", shape.hidden},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.query_heads},
          {"num_key_value_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"num_experts", shape.experts},
          {"num_experts_per_tok", shape.top_k},
          {"moe_intermediate_size", shape.inter},
          {"intermediate_size", shape.inter},
          {"norm_topk_prob", true},
          {"max_position_embeddings", 256},
          {"torch_dtype", "float32"}};
}

WrittenTensors tiny_tensors(const TinyShape& shape) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 0.3F);
  WrittenTensors tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> extents, float mean = 0) {
    int64_t count = 1;
    for (const int64_t extent : extents) count *= extent;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = mean + normal(random);
    tensors[name + ".weight"] = make_tensor(DType::float32, std::move(extents), values);
  };
  const int query_width = shape.query_heads * shape.head_dim;
  const int kv_width = shape.kv_heads * shape.head_dim;
  add("model.embed_tokens", {shape.vocab, shape.hidden});
  add("lm_head", {shape.vocab, shape.hidden});
  add("model.norm", {shape.hidden}, 1);
  for (int i = 0; i < shape.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    add(layer + "input_layernorm", {shape.hidden}, 1);
    add(layer + "post_attention_layernorm", {shape.hidden}, 1);
    add(layer + "self_attn.q_proj", {query_width, shape.hidden});
    add(layer + "self_attn.k_proj", {kv_width, shape.hidden});
    add(layer + "self_attn.v_proj", {kv_width, shape.hidden});
    add(layer + "self_attn.o_proj", {shape.hidden, query_width});
    add(layer + "self_attn.q_norm", {shape.head_dim}, 1);
    add(layer + "self_attn.k_norm", {shape.head_dim}, 1);
    add(layer + "mlp.gate", {shape.experts, shape.hidden});
    for (int e = 0; e < shape.experts; ++e) {
      const std::string expert = fmt::format("{}mlp.experts.{}.", layer, e);
      add(expert + "gate_proj", {shape.inter, shape.hidden});
      add(expert + "up_proj", {shape.inter, shape.hidden});
      add(expert + "down_proj", {shape.hidden, shape.inter});
    }
  }
  return tensors;
}

void write_checkpoint(const TemporaryDirectory& directory, const nlohmann::json& config,
                      const WrittenTensors& tensors) {
  directory.write("config.json", config.dump());
  directory.write("model.safetensors", safetensors_file(tensors));
}

}  // namespace sluice::test
