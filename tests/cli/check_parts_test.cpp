// What `sluice check` is made of: reading a reference, and judging what was computed against it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cli/judge.h"
#include "cli/reference.h"
#include "support/temporary_directory.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

constexpr const char* kGood = R"([{"input_ids": [5, 6, 7], "greedy": [1, 2], "greedy_margin": [0.5, 0.25],
  "last_top20": [[3, 1.5], [0, -2]], "prompt_logprobs": [-1, -2.5]},
  {"input_ids": [4], "greedy": [9], "last_logits": [1, 2, 3.5], "prompt_logprobs": []}])";

Result<std::vector<ReferenceCase>> read(std::string_view text) {
  const test::TemporaryDirectory directory;
  directory.write("reference.json", text);
  return read_reference(directory.path() + "/reference.json");
}

TEST(Reference, ReadsBothShapes) {
  const auto cases = read(kGood);
  ASSERT_TRUE(cases.ok()) << cases.status().message();
  ASSERT_EQ(cases->size(), 2U);
  const ReferenceCase& first = cases->front();
  EXPECT_EQ(first.prompt, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(first.greedy, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(first.greedy_margin, (std::vector<float>{0.5F, 0.25F}));
  EXPECT_EQ(first.last_top, (std::vector<std::pair<int32_t, float>>{{3, 1.5F}, {0, -2.0F}}));
  EXPECT_EQ(first.prompt_logprobs, (std::vector<float>{-1, -2.5F}));
  EXPECT_EQ(cases->back().last_logits, (std::vector<float>{1, 2, 3.5F}));
  EXPECT_TRUE(cases->back().prompt_logprobs.empty());
}

TEST(Reference, AMalformedFileIsOneErrorWithItsPlace) {
  const auto error = [](std::string_view text) {
    const auto cases = read(text);
    if (cases.ok()) return std::string("none");
    const std::string& message = cases.status().message();
    return message.substr(message.find("reference.json"));
  };
  EXPECT_THAT(error("{"), HasSubstr("not valid JSON"));
  EXPECT_EQ(error("{}"), "reference.json: must be a list of at least one case");
  EXPECT_EQ(error("[]"), "reference.json: must be a list of at least one case");
  EXPECT_EQ(error("[3]"), "reference.json: case 1: must be an object");
  EXPECT_EQ(error("[{}]"), "reference.json: case 1: input_ids is missing or empty; it must list token ids");
  EXPECT_EQ(error(R"([{"input_ids": "x"}])"),
            "reference.json: case 1: input_ids is string; it must be a list");
  EXPECT_EQ(error(R"([{"input_ids": [1, -2]}])"),
            "reference.json: case 1: input_ids holds -2; it must hold token ids");
  EXPECT_EQ(error(R"([{"input_ids": [99999999999]}])"),
            "reference.json: case 1: input_ids holds 99999999999; it must hold token ids");
  EXPECT_EQ(error(R"([{"input_ids": [1.5]}])"),
            "reference.json: case 1: input_ids holds 1.5; it must hold token ids");
  EXPECT_EQ(error(R"([{"input_ids": [1], "greedy": []}])"),
            "reference.json: case 1: greedy is missing or empty; it must list token ids");
  EXPECT_EQ(error(R"([{"input_ids": [1], "greedy": [1], "last_logits": [1, "a"]}])"),
            R"(reference.json: case 1: last_logits holds "a"; it must hold finite numbers)");
  EXPECT_EQ(error(R"([{"input_ids": [1], "greedy": [1], "last_logits": [1e300]}])"),
            "reference.json: case 1: last_logits holds 1e+300; it must hold finite numbers");
  EXPECT_EQ(error(R"([{"input_ids": [1], "greedy": [1]}])"),
            "reference.json: case 1: neither last_logits nor last_top20; one of them must hold the logits "
            "after the "
            "prompt");
  EXPECT_EQ(error(R"([{"input_ids": [1], "greedy": [1], "last_top20": [[1]]}])"),
            "reference.json: case 1: last_top20 holds [1]; it must hold pairs of id and logit");
  EXPECT_EQ(error(R"([{"input_ids": [1], "greedy": [1], "last_logits": [1], "greedy_margin": [1, 2]}])"),
            "reference.json: case 1: greedy_margin has 2 values; it must have 1");
  EXPECT_EQ(error(R"([{"input_ids": [1, 2], "greedy": [1], "last_logits": [1], "prompt_logprobs": [1, 2]}])"),
            "reference.json: case 1: prompt_logprobs has 2 values; it must have 1");
  EXPECT_EQ(read_reference("/nowhere/reference.json").status().code(), Code::not_found);
}

ReferenceCase reference() {
  ReferenceCase made;
  made.prompt = {1, 2};
  made.greedy = {2, 0, 1};
  made.greedy_margin = {1.0F, 0.001F, 1.0F};
  made.last_logits = {0.0F, 3.0F, 4.0F};
  return made;
}

Observed observed() {
  Observed made;
  made.first_logits = {0.0F, 3.0F, 4.0F};
  made.tokens = {2, 0, 1};
  made.margins = {1.0F, 0.5F, 0.5F};
  made.largest = {4.0F, 4.0F, 4.0F};
  return made;
}

TEST(Judge, EqualPasses) {
  const Verdict verdict = judge(reference(), observed(), 1e-4);
  EXPECT_EQ(verdict.failure, "");
  EXPECT_EQ(verdict.logits_error, 0);
  EXPECT_EQ(verdict.agreed, 3U);
  EXPECT_FALSE(verdict.excused_margin.has_value());
}

TEST(Judge, LogitsErrorIsRelativeAndInTheL2Norm) {
  Observed off = observed();
  off.first_logits = {0.3F, 3.0F, 4.4F};
  const Verdict verdict = judge(reference(), off, 1e-4);
  EXPECT_NEAR(verdict.logits_error, 0.1, 1e-6);
  EXPECT_THAT(verdict.failure, HasSubstr("logits are off by 0.1, over the tolerance 0.0001"));
  EXPECT_EQ(judge(reference(), off, 0.11).failure, "");
}

TEST(Judge, OnlyTheTopIsComparedWhereTheReferenceHasNoMore) {
  ReferenceCase top = reference();
  top.last_logits.clear();
  top.last_top = {{2, 4.0F}, {1, 3.0F}};
  Observed off = observed();
  off.first_logits[0] = 1000;
  EXPECT_EQ(judge(top, off, 1e-4).logits_error, 0);
  off.first_logits[1] = 3.5F;
  EXPECT_NEAR(judge(top, off, 1e-4).logits_error, 0.1, 1e-6);
  top.last_top = {{3, 1.0F}};
  EXPECT_EQ(judge(top, off, 1e-4).failure, "last_top20 names token 3; the model's vocabulary has 3");
}

TEST(Judge, ADifferenceWithinTheReferencesMarginIsExcusedAndEndsTheComparison) {
  Observed off = observed();
  off.tokens = {2, 1, 0};
  Verdict verdict = judge(reference(), off, 1e-2);
  EXPECT_EQ(verdict.failure, "");
  EXPECT_EQ(verdict.agreed, 1U);
  EXPECT_FLOAT_EQ(verdict.excused_margin.value(), 0.00025F);
  verdict = judge(reference(), off, 1e-4);
  EXPECT_THAT(verdict.failure, HasSubstr("greedy token 1 is 1, the reference has 0 by a margin of 0.001"));
}

TEST(Judge, OurOwnMarginCountsWhereTheReferenceHasNone) {
  ReferenceCase bare = reference();
  bare.greedy_margin.clear();
  Observed off = observed();
  off.tokens = {2, 0, 0};
  EXPECT_THAT(judge(bare, off, 1e-2).failure, HasSubstr("greedy token 2 is 0, the reference has 1"));
  off.margins[2] = 0.03F;
  EXPECT_EQ(judge(bare, off, 1e-2).failure, "");
  off.largest[2] = 2.0F;  // the same margin is more of a smaller logit
  EXPECT_THAT(judge(bare, off, 1e-2).failure, HasSubstr("0.015 of the largest logit"));
}

TEST(Judge, LargestIsAMagnitude) {
  EXPECT_FLOAT_EQ(largest_of(std::vector<float>{1, -5, 3.5F}), 5);
  EXPECT_FLOAT_EQ(largest_of({}), 0);
}

TEST(Judge, TooFewTokensAndErrorsFail) {
  Observed off = observed();
  off.tokens.pop_back();
  EXPECT_EQ(judge(reference(), off, 1).failure, "gave 2 tokens of 3");
  off.status = data_loss("the logit of token 1 is nan");
  EXPECT_EQ(judge(reference(), off, 1).failure, "the logit of token 1 is nan");
}

TEST(Judge, NotANumberNeverPasses) {
  Observed off = observed();
  off.first_logits[1] = std::nanf("");
  EXPECT_NE(judge(reference(), off, 1e9).failure, "");
  ReferenceCase zero = reference();
  zero.last_logits = {0, 0, 0};
  EXPECT_NE(judge(zero, observed(), 1e9).failure, "");
}

TEST(Judge, AnotherVocabularyIsNamed) {
  Observed off = observed();
  off.first_logits.push_back(1);
  EXPECT_EQ(judge(reference(), off, 1).failure, "last_logits has 3 values; the model's vocabulary has 4");
}

TEST(Judge, PromptLogProbabilitiesCountWhereTheReferenceHasThem) {
  ReferenceCase with = reference();
  with.prompt_logprobs = {-2.0F};
  Observed off = observed();
  off.prompt_logprobs = {-2.1F};
  const Verdict verdict = judge(with, off, 1e-2);
  EXPECT_NEAR(verdict.prompt_logprobs_error.value(), 0.05, 1e-6);
  EXPECT_THAT(verdict.failure, HasSubstr("log-probabilities of the prompt are off by 0.05"));
}

TEST(Judge, MarginIsBestMinusSecond) {
  EXPECT_FLOAT_EQ(margin_of(std::vector<float>{1, 5, 3.5F, -2}), 1.5F);
  EXPECT_FLOAT_EQ(margin_of(std::vector<float>{5, 5, 1}), 0);
  EXPECT_FLOAT_EQ(margin_of(std::vector<float>{5}), 0);
}

}  // namespace
}  // namespace sluice::cli
