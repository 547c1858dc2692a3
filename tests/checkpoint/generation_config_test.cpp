// generation_config.json, and the token ids that config.json says when it does not.
#include <gtest/gtest.h>

#include "checkpoint/config.h"
#include "support/expect_error.h"
#include "support/oracle.h"
#include "support/temporary_directory.h"

namespace sluice::checkpoint {
namespace {

using test::expect_error;
using test::TemporaryDirectory;

Result<GenerationConfig> read(const std::string& generation, const std::string& model = "{}") {
  TemporaryDirectory directory;
  if (!generation.empty()) directory.write("generation_config.json", generation);
  directory.write("config.json", model);
  return read_generation_config(directory.path());
}

TEST(GenerationConfig, ReadsAllFields) {
  const auto config = read(
      R"({"eos_token_id":[2,0],"bos_token_id":1,"do_sample":true,"temperature":0.5,"top_p":0.25,"top_k":40})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->eos_token_ids, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_EQ(config->temperature, 0.5F);
  EXPECT_EQ(config->top_p, 0.25F);
  EXPECT_EQ(config->top_k, 40);
  EXPECT_TRUE(config->do_sample);
}

TEST(GenerationConfig, OneEndToken) {
  EXPECT_EQ(read(R"({"eos_token_id":7})")->eos_token_ids, std::vector<int32_t>{7});
}

TEST(GenerationConfig, AbsentAndNullFields) {
  const auto config = read(R"({"eos_token_id":null,"temperature":null})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->eos_token_ids.empty());
  EXPECT_FALSE(config->bos_token_id || config->temperature || config->top_p || config->top_k ||
               config->do_sample);
}

TEST(GenerationConfig, TokenIdsOfConfigJson) {
  EXPECT_EQ(read("", R"({"eos_token_id":5})")->eos_token_ids, std::vector<int32_t>{5});
  EXPECT_EQ(read("{}", R"({"eos_token_id":[5,6],"bos_token_id":4})")->bos_token_id, 4);
  EXPECT_EQ(read(R"({"eos_token_id":2})", R"({"eos_token_id":5})")->eos_token_ids, std::vector<int32_t>{2})
      << "generation_config.json comes first";
  const auto oracle = read_generation_config(*test::oracle_directory("qwen3-moe-a-fp8"));
  EXPECT_EQ(oracle->eos_token_ids, std::vector<int32_t>{2});
}

TEST(GenerationConfig, WrongValues) {
  for (const char* id : {"-1", "2.5", "\"2\"", "[2,\"0\"]", "4294967296", "true", "[[2]]"}) {
    expect_error(read(std::string(R"({"eos_token_id":)") + id + "}").status(), Code::invalid_argument,
                 {"generation_config.json: field 'eos_token_id' is", "integer from 0"});
  }
  expect_error(read("{}", R"({"eos_token_id":-1})").status(), Code::invalid_argument,
               {"/config.json", "eos_token_id"});
  expect_error(read(R"({"temperature":-0.1})").status(), Code::invalid_argument,
               {"temperature' is -0.1", "from 0"});
  expect_error(read(R"({"temperature":"hot"})").status(), Code::invalid_argument, {"temperature"});
  expect_error(read(R"({"top_p":0})").status(), Code::invalid_argument, {"top_p' is 0"});
  expect_error(read(R"({"top_p":1.5})").status(), Code::invalid_argument, {"top_p' is 1.5"});
  expect_error(read(R"({"top_k":-1})").status(), Code::invalid_argument, {"top_k' is -1"});
  expect_error(read(R"({"do_sample":"no"})").status(), Code::invalid_argument, {"do_sample"});
  expect_error(read("{").status(), Code::invalid_argument, {"generation_config.json", "not valid JSON"});
  expect_error(read("3").status(), Code::invalid_argument, {"generation_config.json", "JSON object"});
}

}  // namespace
}  // namespace sluice::checkpoint
