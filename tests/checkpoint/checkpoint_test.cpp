// A checkpoint's directory: one file or shards, and what is missing or does not fit.
#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/safetensors_writer.h"
#include "support/temporary_directory.h"

namespace sluice::checkpoint {
namespace {

using test::expect_error;
using test::make_tensor;
using test::safetensors_file;
using test::TemporaryDirectory;

std::string one_tensor(const std::string& name, const std::vector<float>& values) {
  return safetensors_file(
      {{name, make_tensor(DType::float32, {static_cast<int64_t>(values.size())}, values)}});
}

TEST(Checkpoint, FindsTensorsOfOneFile) {
  TemporaryDirectory directory;
  directory.write("model.safetensors",
                  safetensors_file({{"w", make_tensor(DType::bfloat16, {1, 2}, {1.5, -2})},
                                    {"n", make_tensor(DType::float32, {1}, {3})}}));
  const auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->tensor_count(), 2U);
  EXPECT_EQ(checkpoint->total_bytes(), 8U);
  EXPECT_TRUE(checkpoint->contains("w"));
  EXPECT_FALSE(checkpoint->contains("v"));
  const auto w = checkpoint->find("w", {1, 2});
  ASSERT_TRUE(w.ok()) << w.status().message();
  EXPECT_EQ(w->elements(), 2);
  EXPECT_EQ(bfloat16_to_float(reinterpret_cast<const uint16_t*>(w->data)[1]), -2.0F);
}

TEST(Checkpoint, ViewsOutliveTheOriginalWhileACopyLives) {
  TemporaryDirectory directory;
  directory.write("model.safetensors", one_tensor("w", {4, 5}));
  auto opened = Checkpoint::open(directory.path());
  const Checkpoint copy = *opened;
  const auto w = copy.find("w");
  opened = Status(Code::cancelled, "gone");
  EXPECT_EQ(reinterpret_cast<const float*>(w->data)[1], 5.0F);
}

TEST(Checkpoint, FindsTensorsOfShards) {
  TemporaryDirectory directory;
  directory.write("model-1.safetensors", one_tensor("a", {1, 2}));
  directory.write("model-2.safetensors", one_tensor("b", {3}));
  directory.write("model.safetensors.index.json",
                  R"({"metadata":{},"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})");
  const auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->total_bytes(), 12U);
  EXPECT_EQ(reinterpret_cast<const float*>(checkpoint->find("b")->data)[0], 3.0F);
  expect_error(checkpoint->find("c").status(), Code::not_found,
               {"model.safetensors.index.json: no tensor 'c'"});
  expect_error(checkpoint->find("b", {2}).status(), Code::data_loss,
               {"model-2.safetensors: tensor 'b'", "[1]", "[2]"});
}

TEST(Checkpoint, MissingDirectoryOrFiles) {
  expect_error(Checkpoint::open("/nonexistent/model").status(), Code::not_found,
               {"/nonexistent/model", "no such directory"});
  TemporaryDirectory directory;
  expect_error(Checkpoint::open(directory.path()).status(), Code::not_found,
               {directory.path().c_str(), "model.safetensors", "model.safetensors.index.json"});
}

TEST(Checkpoint, EmptyAndTruncatedFiles) {
  TemporaryDirectory directory;
  directory.write("model.safetensors", "");
  expect_error(Checkpoint::open(directory.path()).status(), Code::data_loss, {"model.safetensors", "empty"});
  const std::string whole = one_tensor("w", {1, 2, 3, 4});
  directory.write("model.safetensors", whole.substr(0, whole.size() - 5));
  expect_error(Checkpoint::open(directory.path()).status(), Code::data_loss,
               {"model.safetensors: tensor 'w'", "data_offsets [0, 16]", "truncated"});
}

TEST(Checkpoint, MissingTensorAndWrongShape) {
  TemporaryDirectory directory;
  directory.write("model.safetensors", one_tensor("w", {1, 2}));
  const auto checkpoint = Checkpoint::open(directory.path());
  expect_error(checkpoint->find("v").status(), Code::not_found, {"/model.safetensors: no tensor 'v'"});
  expect_error(checkpoint->find("w", {1, 2}).status(), Code::data_loss,
               {"/model.safetensors: tensor 'w' has shape [2]", "config.json makes it [1, 2]"});
}

TEST(Checkpoint, TypesThatOnlyTheFormatHas) {
  TemporaryDirectory directory;
  directory.write("model.safetensors",
                  safetensors_file({{"h", {.dtype = "F16", .shape = {2}, .bytes = "abcd"}},
                                    {"w", make_tensor(DType::float32, {1}, {1})}}));
  const auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << "a tensor that nobody asks for is no error: "
                               << checkpoint.status().message();
  EXPECT_TRUE(checkpoint->find("w").ok());
  expect_error(checkpoint->find("h").status(), Code::unimplemented, {"tensor 'h'", "dtype F16", "BF16"});
}

TEST(Checkpoint, UnalignedTensors) {
  TemporaryDirectory directory;
  directory.write(
      "model.safetensors",
      safetensors_file(
          R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
          "abcde"));
  const auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  expect_error(checkpoint->find("w").status(), Code::data_loss, {"tensor 'w'", "not aligned"});
}

TEST(Checkpoint, IndexThatIsWrong) {
  TemporaryDirectory directory;
  directory.write("a.safetensors", one_tensor("a", {1}));
  const auto open_with = [&](const std::string& index) {
    directory.write("model.safetensors.index.json", index);
    return Checkpoint::open(directory.path()).status();
  };
  expect_error(open_with("{"), Code::invalid_argument, {"model.safetensors.index.json", "not valid JSON"});
  expect_error(open_with("[]"), Code::data_loss, {"weight_map"});
  expect_error(open_with("{}"), Code::data_loss, {"'weight_map' is missing"});
  expect_error(open_with(R"({"weight_map":[]})"), Code::data_loss, {"weight_map"});
  expect_error(open_with(R"({"weight_map":{}})"), Code::data_loss, {"'weight_map' is empty"});
  expect_error(open_with(R"({"weight_map":{"a":3}})"), Code::data_loss,
               {"tensor 'a'", "in 3", "same directory"});
  expect_error(open_with(R"({"weight_map":{"a":""}})"), Code::data_loss, {"tensor 'a'"});
  expect_error(open_with(R"({"weight_map":{"a":"../a.safetensors"}})"), Code::data_loss,
               {"../a.safetensors"});
  expect_error(open_with(R"({"weight_map":{"a":"b.safetensors"}})"), Code::not_found,
               {"shard of tensor 'a'", "b.safetensors", "No such file"});
  expect_error(open_with(R"({"weight_map":{"a":"a.safetensors","z":"a.safetensors"}})"), Code::data_loss,
               {"tensor 'z'", "a.safetensors", "does not hold it"});
}

TEST(Checkpoint, BrokenShard) {
  TemporaryDirectory directory;
  directory.write("a.safetensors", one_tensor("a", {1}).substr(0, 20));
  directory.write("model.safetensors.index.json", R"({"weight_map":{"a":"a.safetensors"}})");
  expect_error(Checkpoint::open(directory.path()).status(), Code::data_loss, {"a.safetensors", "truncated"});
}

}  // namespace
}  // namespace sluice::checkpoint
