#include "server/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes.h"

namespace sluice::server {
namespace {

using testing::ElementsAre;

PreparedRequest prepared(ApiKind kind, std::string_view body, const ModelContext& model) {
  auto result = prepare_request(kind, body, model);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *std::move(result) : PreparedRequest{};
}

TEST(Prepare, ChatFillsTheContextAndACompletionHasSixteenTokens) {
  const ModelContext model = fake_model({}, 100);
  const auto chat =
      prepared(ApiKind::chat, R"({"model":"demo","messages":[{"role":"user","content":"hi"}]})", model);
  EXPECT_EQ(chat.prompts[0].size(), std::string("<user>hi<assistant>").size());
  EXPECT_THAT(chat.max_tokens, ElementsAre(100 - 19));
  const auto completion = prepared(ApiKind::completion, R"({"model":"demo","prompt":["ab","abc"]})", model);
  EXPECT_THAT(completion.prompts, ElementsAre(ElementsAre('a', 'b'), ElementsAre('a', 'b', 'c')));
  EXPECT_THAT(completion.max_tokens, ElementsAre(16, 16));
}

TEST(Prepare, ADefaultNeverExceedsTheContextAndTheLastTokenFits) {
  const ModelContext model = fake_model({}, 10);
  EXPECT_THAT(prepared(ApiKind::completion, R"({"model":"demo","prompt":"abcdefg"})", model).max_tokens,
              ElementsAre(3));
  EXPECT_THAT(prepared(ApiKind::completion, R"({"model":"demo","prompt":"abcdefghi"})", model).max_tokens,
              ElementsAre(1));
  EXPECT_FALSE(prepare_request(ApiKind::completion, R"({"model":"demo","prompt":"abcdefghij"})", model).ok());
}

TEST(Prepare, BothNamesOfTheModelAreTaken) {
  const ModelContext model = fake_model();
  prepared(ApiKind::completion, R"({"model":"models/demo","prompt":"a"})", model);
}

TEST(Prepare, DefaultsComeFromTheGenerationConfigAndTheRequestGoesFirst) {
  ModelContext model = fake_model();
  const std::string plain = R"({"model":"demo","prompt":"a"})";
  EXPECT_EQ(prepared(ApiKind::completion, plain, model).sampling.temperature, 1.0F);
  model.temperature = 0.7F;
  model.top_k = 40;
  model.top_p = 0.9F;
  auto sampling = prepared(ApiKind::completion, plain, model).sampling;
  EXPECT_EQ(sampling.temperature, 0.7F);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.top_p, 0.9F);
  sampling = prepared(ApiKind::completion,
                      R"({"model":"demo","prompt":"a","temperature":0,"top_k":-1,"top_p":1})", model)
                 .sampling;
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.top_p, 1);
}

TEST(Prepare, TopPOfZeroIsTheBestToken) {
  const auto sampling =
      prepared(ApiKind::completion, R"({"model":"demo","prompt":"a","top_p":0})", fake_model()).sampling;
  EXPECT_EQ(sampling.top_k, 1);
  EXPECT_GT(sampling.top_p, 0);
}

TEST(Prepare, EachChoiceHasItsOwnSeed) {
  const ModelContext model = fake_model();
  const auto seeded =
      prepared(ApiKind::completion, R"({"model":"demo","prompt":["a","b"],"n":2,"seed":7})", model);
  EXPECT_EQ(seeded.choices(), 4);
  std::vector<uint64_t> seeds;
  for (int i = 0; i < 4; ++i) seeds.push_back(seeded.engine_request(i, 99).sampling.seed);
  EXPECT_THAT(seeds, ElementsAre(7, 8, 7, 8));
  EXPECT_THAT(seeded.engine_request(1, 99).prompt, ElementsAre('a'));
  EXPECT_THAT(seeded.engine_request(2, 99).prompt, ElementsAre('b'));
  const auto drawn = prepared(ApiKind::completion, R"({"model":"demo","prompt":"a"})", model);
  EXPECT_EQ(drawn.engine_request(0, 99).sampling.seed, 99u);
}

TEST(Prepare, WithoutATokenizerOnlyTokenIds) {
  ModelContext model = fake_model();
  model.tokenizer.reset();
  EXPECT_TRUE(prepare_request(ApiKind::completion, R"({"model":"demo","prompt":[1,2]})", model).ok());
  const auto text = prepare_request(ApiKind::completion, R"({"model":"demo","prompt":"x"})", model);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, "no_tokenizer");
  const auto chat =
      prepare_request(ApiKind::chat, R"({"model":"demo","messages":[{"role":"user","content":"x"}]})", model);
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.error().code, "no_tokenizer");
}

}  // namespace
}  // namespace sluice::server
