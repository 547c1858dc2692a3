// config.json: older and newer spellings mean the same; what would change the result is refused by name.
#include "checkpoint/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/oracle.h"
#include "support/temporary_directory.h"

namespace sluice::checkpoint {
namespace {

using nlohmann::json;
using test::expect_error;
using test::TemporaryDirectory;

json valid() {
  return json::parse(R"({
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
    "vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 384, "moe_intermediate_size": 256,
    "num_experts": 16, "num_experts_per_tok": 4, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
    "rope_theta": 5000.0, "torch_dtype": "bfloat16", "norm_topk_prob": true, "hidden_act": "silu"})");
}

Result<ModelConfig> read_text(const std::string& text) {
  TemporaryDirectory directory;
  directory.write("config.json", text);
  return read_model_config(directory.path());
}

Result<ModelConfig> read(const json& config) { return read_text(config.dump()); }

// The valid configuration with `changes` merged into it (null removes a field), which must be refused.
void expect_refused(const json& changes, Code code, std::initializer_list<const char*> said) {
  json config = valid();
  config.merge_patch(changes);
  expect_error(read(config).status(), code, said);
}

ModelConfig expect_read(const json& changes) {
  json config = valid();
  config.merge_patch(changes);
  const auto result = read(config);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : ModelConfig{};
}

TEST(ModelConfig, ReadsAllFields) {
  const ModelConfig config = expect_read(json::object());
  EXPECT_EQ(config.architecture, Architecture::qwen3_moe);
  EXPECT_EQ(architecture_name(config.architecture), "Qwen3MoeForCausalLM");
  EXPECT_EQ(config.vocab_size, 512);
  EXPECT_EQ(config.hidden_size, 128);
  EXPECT_EQ(config.layers, 4);
  EXPECT_EQ(config.query_heads, 8);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.max_position_embeddings, 1024);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-5F);
  EXPECT_EQ(config.rope_theta, 5000.0);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, DType::bfloat16);
  EXPECT_EQ(config.experts, 16);
  EXPECT_EQ(config.top_k, 4);
  EXPECT_EQ(config.moe_intermediate_size, 256);
  EXPECT_TRUE(config.norm_topk_prob);
  EXPECT_EQ(config.decoder_sparse_step, 1);
  EXPECT_EQ(config.moe_layers(), 4);
  EXPECT_FALSE(config.quantization.has_value());
}

TEST(ModelConfig, NewerSpellings) {
  const ModelConfig config =
      expect_read({{"num_experts", nullptr},
                   {"num_local_experts", 32},
                   {"rope_theta", nullptr},
                   {"rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "default"}}},
                   {"torch_dtype", nullptr},
                   {"dtype", "float32"}});
  EXPECT_EQ(config.experts, 32);
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_EQ(config.dtype, DType::float32);
}

TEST(ModelConfig, NullsAndOlderFormsCountAsAbsent) {
  json config = valid();
  config.erase("head_dim");
  config["rope_scaling"] = nullptr;
  config["sliding_window"] = nullptr;
  config["quantization_config"] = nullptr;
  config["torch_dtype"] = "torch.float32";
  const auto result = read(config);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->head_dim, 16);
  EXPECT_EQ(result->dtype, DType::float32);
}

TEST(ModelConfig, SpellingsMustAgree) {
  EXPECT_EQ(expect_read({{"num_local_experts", 16}}).experts, 16);
  expect_refused({{"num_local_experts", 8}}, Code::invalid_argument,
                 {"config.json: field 'num_local_experts' is 8", "'num_experts' is 16", "agree"});
}

TEST(ModelConfig, WhichLayersHaveExperts) {
  const ModelConfig every_second = expect_read({{"decoder_sparse_step", 2}});
  EXPECT_FALSE(every_second.is_moe_layer(0));
  EXPECT_TRUE(every_second.is_moe_layer(1));
  EXPECT_EQ(every_second.moe_layers(), 2);
  EXPECT_EQ(every_second.intermediate_size, 384);
  const ModelConfig listed = expect_read({{"decoder_sparse_step", 2}, {"mlp_only_layers", {1, 2}}});
  EXPECT_FALSE(listed.is_moe_layer(1));
  EXPECT_TRUE(listed.is_moe_layer(3));
}

TEST(ModelConfig, IntermediateSizeIsNeededByDenseLayersOnly) {
  EXPECT_EQ(expect_read({{"intermediate_size", nullptr}}).moe_layers(), 4);
  expect_refused({{"intermediate_size", nullptr}, {"mlp_only_layers", {0}}}, Code::invalid_argument,
                 {"'intermediate_size' is missing"});
}

TEST(ModelConfig, Quantization) {
  const ModelConfig config = expect_read({{"quantization_config",
                                           {{"quant_method", "fp8"},
                                            {"fmt", "e4m3"},
                                            {"activation_scheme", "dynamic"},
                                            {"weight_block_size", {128, 64}}}}});
  ASSERT_TRUE(config.quantization.has_value());
  EXPECT_EQ(config.quantization->block_rows, 128);
  EXPECT_EQ(config.quantization->block_cols, 64);
}

TEST(ModelConfig, QuantizationThatIsNotSupported) {
  const auto refuse = [](const json& quantization, Code code, std::initializer_list<const char*> said) {
    expect_refused({{"quantization_config", quantization}}, code, said);
  };
  refuse({{"quant_method", "awq"}}, Code::unimplemented,
         {"'quantization_config.quant_method' is \"awq\"", "fp8"});
  refuse({{"bits", 4}}, Code::unimplemented, {"'quantization_config.quant_method' is missing", "fp8"});
  refuse("fp8", Code::invalid_argument, {"'quantization_config' is \"fp8\"", "object"});
  refuse({{"quant_method", "fp8"}}, Code::invalid_argument, {"weight_block_size' is missing", "[128, 128]"});
  for (const json& block : {json(128), json({128}), json({128, 0}), json({128, 128, 128}), json({128, -1})}) {
    refuse({{"quant_method", "fp8"}, {"weight_block_size", block}}, Code::invalid_argument,
           {"weight_block_size' is"});
  }
  refuse({{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}, {"fmt", "e5m2"}}, Code::unimplemented,
         {"'quantization_config.fmt' is \"e5m2\"", "\"e4m3\""});
  refuse({{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}, {"activation_scheme", "static"}},
         Code::unimplemented, {"activation_scheme"});
}

TEST(ModelConfig, UnknownArchitecture) {
  expect_refused({{"architectures", {"LlamaForCausalLM"}}}, Code::unimplemented,
                 {"config.json: field 'architectures' is [\"LlamaForCausalLM\"]", "Qwen3MoeForCausalLM"});
  expect_refused({{"architectures", {"A", "B"}}}, Code::invalid_argument,
                 {"list of one name", "Qwen3MoeForCausalLM"});
  expect_refused({{"architectures", json::array({3})}}, Code::unimplemented, {"[3]"});
  expect_refused({{"architectures", "Qwen3MoeForCausalLM"}}, Code::invalid_argument, {"list of one name"});
  expect_refused({{"architectures", nullptr}, {"model_type", "llama"}}, Code::unimplemented,
                 {"'model_type' is \"llama\"", "Qwen3MoeForCausalLM"});
  expect_refused({{"architectures", nullptr}, {"model_type", nullptr}}, Code::unimplemented,
                 {"'architectures' is missing", "Qwen3MoeForCausalLM"});
  EXPECT_EQ(expect_read({{"architectures", nullptr}}).architecture, Architecture::qwen3_moe);
}

TEST(ModelConfig, MissingFields) {
  for (const char* field :
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "num_experts", "num_experts_per_tok", "moe_intermediate_size", "max_position_embeddings"}) {
    expect_refused({{field, nullptr}}, Code::invalid_argument,
                   {"config.json", field, "is missing", "an integer from 1"});
  }
}

TEST(ModelConfig, WrongTypesAndValues) {
  for (const char* field :
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim",
        "num_key_value_heads", "num_experts", "num_experts_per_tok", "decoder_sparse_step"}) {
    for (const json& value : {json("8"), json(8.5), json(-1), json(0), json(true), json({8}), json(1e300),
                              json(std::numeric_limits<uint64_t>::max())}) {
      expect_refused({{field, value}}, Code::invalid_argument,
                     {"config.json", field, "an integer from 1 to"});
    }
  }
  expect_refused({{"rms_norm_eps", 0}}, Code::invalid_argument, {"rms_norm_eps' is 0", "above 0"});
  expect_refused({{"rms_norm_eps", "small"}}, Code::invalid_argument, {"rms_norm_eps"});
  expect_refused({{"rope_theta", -1}}, Code::invalid_argument, {"rope_theta' is -1"});
  expect_refused({{"tie_word_embeddings", 1}}, Code::invalid_argument,
                 {"tie_word_embeddings' is 1", "true or false"});
  expect_refused({{"norm_topk_prob", "yes"}}, Code::invalid_argument, {"norm_topk_prob"});
  expect_refused({{"mlp_only_layers", {"0"}}}, Code::invalid_argument, {"mlp_only_layers"});
  expect_refused({{"mlp_only_layers", {-1}}}, Code::invalid_argument, {"mlp_only_layers' is [-1]"});
  expect_refused({{"torch_dtype", "float16"}}, Code::unimplemented,
                 {"torch_dtype' is \"float16\"", "bfloat16"});
  expect_refused({{"torch_dtype", 16}}, Code::invalid_argument, {"torch_dtype' is 16", "string"});
  expect_refused({{"rope_parameters", 3}}, Code::invalid_argument, {"rope_parameters' is 3", "object"});
}

TEST(ModelConfig, SizesThatDoNotFitEachOther) {
  expect_refused({{"num_key_value_heads", 3}}, Code::invalid_argument,
                 {"num_key_value_heads' is 3", "divide num_attention_heads, 8"});
  expect_refused({{"head_dim", nullptr}, {"num_attention_heads", 6}, {"num_key_value_heads", 2}},
                 Code::invalid_argument, {"head_dim' is missing", "6", "hidden_size, 128"});
  expect_refused({{"head_dim", 31}}, Code::invalid_argument, {"head_dim' is 31", "even"});
  expect_refused({{"num_experts_per_tok", 17}}, Code::invalid_argument,
                 {"num_experts_per_tok' is 17", "16 experts"});
}

TEST(ModelConfig, WhatWouldChangeTheResultIsRefused) {
  expect_refused({{"hidden_act", "gelu"}}, Code::unimplemented, {"hidden_act' is \"gelu\"", "\"silu\""});
  expect_refused({{"attention_bias", true}}, Code::unimplemented, {"attention_bias' is true"});
  expect_refused({{"use_sliding_window", true}}, Code::unimplemented, {"use_sliding_window' is true"});
  expect_refused({{"rope_scaling", {{"type", "yarn"}, {"factor", 4}}}}, Code::unimplemented,
                 {"rope_scaling.type' is \"yarn\"", "\"default\""});
  expect_refused({{"rope_parameters", {{"rope_type", "linear"}}}}, Code::unimplemented,
                 {"rope_parameters.rope_type' is \"linear\""});
  expect_refused({{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}, Code::unimplemented,
                 {"partial_rotary_factor' is 0.5"});
  expect_read({{"use_sliding_window", false}, {"sliding_window", 4096}, {"attention_bias", false}});
}

TEST(ModelConfig, FilesThatAreNoConfig) {
  expect_error(read_model_config("/nonexistent").status(), Code::not_found, {"/nonexistent/config.json"});
  expect_error(read_text("{\"vocab_size\": }").status(), Code::invalid_argument,
               {"config.json", "not valid JSON"});
  expect_error(read_text("[]").status(), Code::invalid_argument, {"config.json", "holds []", "JSON object"});
  expect_error(read_text("").status(), Code::data_loss, {"config.json", "empty"});
  expect_error(read_text(std::string(100, '[')).status(), Code::invalid_argument, {"nested 100 deep"});
}

TEST(ModelConfig, TheOraclesConfigurations) {
  const auto fp8 = read_model_config(*test::oracle_directory("qwen3-moe-a-fp8"));
  ASSERT_TRUE(fp8.ok()) << fp8.status().message();
  EXPECT_EQ(fp8->experts, 8);
  EXPECT_EQ(fp8->rope_theta, 1e6);
  EXPECT_TRUE(fp8->quantization.has_value());
  const auto demo = read_model_config(test::demo_directory());
  ASSERT_TRUE(demo.ok()) << demo.status().message();
  EXPECT_TRUE(demo->tie_word_embeddings);
  EXPECT_EQ(demo->layers, 8);
}

}  // namespace
}  // namespace sluice::checkpoint
