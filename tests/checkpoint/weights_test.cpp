// Matrices with FP8 block scales: what they mean, and what is refused.
#include "checkpoint/weights.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/expect_error.h"
#include "support/safetensors_writer.h"
#include "support/temporary_directory.h"

namespace sluice::checkpoint {
namespace {

using test::expect_error;
using test::make_tensor;
using test::TemporaryDirectory;
using test::WrittenTensors;

constexpr BlockQuantization kBlocks{.block_rows = 2, .block_cols = 3};

class Weights : public testing::Test {
 protected:
  const Checkpoint& written(const WrittenTensors& tensors) {
    directory_.write("model.safetensors", test::safetensors_file(tensors));
    checkpoint_ = Checkpoint::open(directory_.path());
    return *checkpoint_;
  }
  // (3, 4) in blocks of (2, 3): scales are (2, 2).
  static WrittenTensors scaled(DType scale_type, std::vector<int64_t> scale_shape,
                               std::vector<float> scales) {
    return {{"m.weight", make_tensor(DType::float8_e4m3, {3, 4}, std::vector<float>(12, 1.0F))},
            {"m.weight_scale_inv", make_tensor(scale_type, std::move(scale_shape), scales)}};
  }

 private:
  TemporaryDirectory directory_;
  Result<Checkpoint> checkpoint_ = Status(Code::internal, "not opened");
};

TEST_F(Weights, PlainMatrix) {
  const Checkpoint& checkpoint = written({{"m.weight", make_tensor(DType::bfloat16, {1, 2}, {1, 2})}});
  for (const auto& quantization : {std::optional<BlockQuantization>(), std::optional(kBlocks)}) {
    const auto m = find_matrix(checkpoint, "m", 1, 2, quantization);
    ASSERT_TRUE(m.ok()) << m.status().message();
    EXPECT_EQ(m->dtype, DType::bfloat16);
    EXPECT_EQ(m->scales, nullptr);
  }
  expect_error(find_matrix(checkpoint, "m", 2, 2, {}).status(), Code::data_loss,
               {"tensor 'm.weight'", "[1, 2]", "[2, 2]"});
}

TEST_F(Weights, ScalesPerBlock) {
  const auto m = find_matrix(written(scaled(DType::float32, {2, 2}, {1, 2, 3, 4})), "m", 3, 4, kBlocks);
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->dtype, DType::float8_e4m3);
  EXPECT_EQ(m->block_rows, 2);
  EXPECT_EQ(m->block_cols, 3);
  EXPECT_EQ(m->scales[3], 4.0F);
}

TEST_F(Weights, Bfloat16ScalesAreConvertedAndOutliveACopy) {
  auto found = find_matrix(written(scaled(DType::bfloat16, {2, 2}, {1, 2, 3, 0.5})), "m", 3, 4, kBlocks);
  ASSERT_TRUE(found.ok()) << found.status().message();
  const MatrixView m = *found;
  found = Status(Code::cancelled, "gone");
  EXPECT_EQ(m.scales[3], 0.5F);
}

TEST_F(Weights, Float8WithoutQuantizationConfig) {
  const Checkpoint& checkpoint = written(scaled(DType::float32, {2, 2}, {1, 2, 3, 4}));
  expect_error(find_matrix(checkpoint, "m", 3, 4, {}).status(), Code::invalid_argument,
               {"tensor 'm.weight' is float8_e4m3", "config.json has no quantization_config", "fp8"});
}

TEST_F(Weights, Float8WithoutScales) {
  WrittenTensors tensors = scaled(DType::float32, {2, 2}, {1, 2, 3, 4});
  tensors.erase("m.weight_scale_inv");
  expect_error(find_matrix(written(tensors), "m", 3, 4, kBlocks).status(), Code::not_found,
               {"no tensor 'm.weight_scale_inv'"});
}

TEST_F(Weights, ScalesOfAnotherShape) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 4}, {4, 1}, {4}}) {
    expect_error(
        find_matrix(written(scaled(DType::float32, shape, {1, 2, 3, 4})), "m", 3, 4, kBlocks).status(),
        Code::data_loss, {"tensor 'm.weight_scale_inv' has shape", "[2, 2]"});
  }
}

TEST_F(Weights, ScalesOfAnotherType) {
  expect_error(find_matrix(written(scaled(DType::int32, {2, 2}, {1, 2, 3, 4})), "m", 3, 4, kBlocks).status(),
               Code::unimplemented, {"tensor 'm.weight_scale_inv'", "int32", "float32 or bfloat16"});
}

TEST_F(Weights, ScalesThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    expect_error(
        find_matrix(written(scaled(DType::float32, {2, 2}, {1, 2, bad, 4})), "m", 3, 4, kBlocks).status(),
        Code::data_loss, {"tensor 'm.weight_scale_inv'", "block [1, 0]", "finite"});
  }
}

TEST_F(Weights, ScalesBesideAnUnquantizedMatrix) {
  WrittenTensors tensors = scaled(DType::float32, {2, 2}, {1, 2, 3, 4});
  tensors["m.weight"] = make_tensor(DType::bfloat16, {3, 4}, std::vector<float>(12, 1.0F));
  expect_error(find_matrix(written(tensors), "m", 3, 4, kBlocks).status(), Code::data_loss,
               {"tensor 'm.weight' is bfloat16", "m.weight_scale_inv", "only float8_e4m3"});
}

TEST_F(Weights, IntegersAreNoWeights) {
  const Checkpoint& checkpoint = written({{"m.weight", make_tensor(DType::int32, {1, 2}, {1, 2})}});
  expect_error(find_matrix(checkpoint, "m", 1, 2, {}).status(), Code::unimplemented, {"'m.weight' is int32"});
}

TEST_F(Weights, Vectors) {
  const Checkpoint& checkpoint = written({{"n.weight", make_tensor(DType::bfloat16, {2}, {1, 2})},
                                          {"q.weight", make_tensor(DType::float8_e4m3, {2}, {1, 2})}});
  EXPECT_TRUE(find_vector(checkpoint, "n.weight", 2).ok());
  expect_error(find_vector(checkpoint, "n.weight", 3).status(), Code::data_loss,
               {"'n.weight'", "[2]", "[3]"});
  expect_error(find_vector(checkpoint, "q.weight", 2).status(), Code::unimplemented,
               {"'q.weight' is float8_e4m3"});
}

}  // namespace
}  // namespace sluice::checkpoint
