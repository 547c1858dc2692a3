// Loading: which tensors a rank looks at, and what it says when they do not fit config.json.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/model.h"
#include "support/expect_error.h"
#include "support/reference_backend.h"
#include "tiny_checkpoint.h"

namespace sluice::test {
namespace {

using model::Model;
using nlohmann::json;

class Load : public testing::Test {
 protected:
  // Loads `rank` of `ranks` from the configuration and tensors as they are now.
  Result<std::unique_ptr<Model>> load(int rank = 0, int ranks = 1, int max_tokens = 8) {
    TemporaryDirectory directory;
    write_checkpoint(directory, config, tensors);
    SLUICE_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint::Checkpoint::open(directory.path()));
    SLUICE_ASSIGN_OR_RETURN(const auto parsed, checkpoint::read_model_config(directory.path()));
    SLUICE_ASSIGN_OR_RETURN(const auto placement, exchange::Placement::contiguous(parsed.experts, ranks));
    return Model::load(checkpoint, parsed, {.placement = placement, .rank = rank, .max_tokens = max_tokens},
                       *backend);
  }

  TinyShape shape;
  json config = tiny_config(shape);
  WrittenTensors tensors = tiny_tensors(shape);
  std::unique_ptr<compute::Backend> backend = make_reference_backend({});
};

TEST_F(Load, SaysItsShapes) {
  const auto model = load();
  ASSERT_TRUE(model.ok()) << model.status().message();
  const compute::KvShape kv = (*model)->kv_shape(10, 32);
  EXPECT_EQ(kv.layers, shape.layers);
  EXPECT_EQ(kv.blocks, 10);
  EXPECT_EQ(kv.block_size, 32);
  EXPECT_EQ(kv.kv_heads, shape.kv_heads);
  EXPECT_EQ(kv.head_dim, shape.head_dim);
  EXPECT_EQ((*model)->config().vocab_size, shape.vocab);
  size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes.size();
  EXPECT_EQ((*model)->weight_bytes(), bytes) << "the reference back end keeps float32";
}

TEST_F(Load, ARankLooksAtItsOwnExpertsOnly) {
  // Experts 2 and 3, which rank 1 of 2 holds, are gone from the file.
  std::erase_if(tensors, [](const auto& entry) {
    return entry.first.find("experts.2.") != std::string::npos ||
           entry.first.find("experts.3.") != std::string::npos;
  });
  const auto holder_of_the_rest = load(0, 2);
  EXPECT_TRUE(holder_of_the_rest.ok()) << holder_of_the_rest.status().message();
  expect_error(load(1, 2).status(), Code::not_found,
               {"model.safetensors: no tensor 'model.layers.0.mlp.experts.2.gate_proj.weight'"});
  expect_error(load(0, 1).status(), Code::not_found, {"experts.2.gate_proj"});
}

TEST_F(Load, EveryTensorIsNeededByName) {
  for (const auto& [name, tensor] : tiny_tensors(shape)) {
    tensors = tiny_tensors(shape);
    tensors.erase(name);
    expect_error(load().status(), Code::not_found, {"model.safetensors: no tensor", name.c_str()});
  }
}

TEST_F(Load, EveryTensorsShapeIsChecked) {
  for (const auto& [name, tensor] : tiny_tensors(shape)) {
    tensors = tiny_tensors(shape);
    tensors[name].shape.push_back(1);
    expect_error(load().status(), Code::data_loss, {name.c_str(), "has shape [", "config.json makes it ["});
  }
}

TEST_F(Load, AVocabularyThatDoesNotMatch) {
  config["vocab_size"] = shape.vocab + 1;
  expect_error(load().status(), Code::data_loss,
               {"tensor 'model.embed_tokens.weight' has shape [32, 16]", "config.json makes it [33, 16]"});
}

TEST_F(Load, ATiedHeadNeedsNoTensor) {
  config["tie_word_embeddings"] = true;
  tensors.erase("lm_head.weight");
  const auto model = load();
  EXPECT_TRUE(model.ok()) << model.status().message();
}

TEST_F(Load, Float8NeedsAQuantizationConfig) {
  const std::string name = "model.layers.1.self_attn.o_proj.weight";
  tensors[name] = make_tensor(DType::float8_e4m3, {16, 32}, std::vector<float>(512, 1.0F));
  expect_error(load().status(), Code::invalid_argument, {name.c_str(), "no quantization_config"});
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  expect_error(load().status(), Code::not_found, {"model.layers.1.self_attn.o_proj.weight_scale_inv"});
  tensors["model.layers.1.self_attn.o_proj.weight_scale_inv"] = make_tensor(DType::float32, {1, 1}, {2});
  EXPECT_TRUE(load().ok());
}

TEST_F(Load, RanksAndRoom) {
  expect_error(load(0, 5).status(), Code::invalid_argument, {"5", "4"});
  expect_error(load(2, 2).status(), Code::invalid_argument, {"rank 2 of 2"});
  expect_error(load(-1, 2).status(), Code::invalid_argument, {"rank -1 of 2"});
  expect_error(load(0, 1, 0).status(), Code::invalid_argument, {"max_tokens is 0"});
}

}  // namespace
}  // namespace sluice::test
