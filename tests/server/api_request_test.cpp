// What requests mean once read; what is refused stands in tests/data/server/bad_requests.json.
#include "server/api_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice::server {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;

constexpr RequestLimits kLimits{.max_choices = 16, .vocab_size = 300};

ParsedRequest chat(std::string_view fields) {
  const Json body = Json::parse(R"({"model":"demo","messages":[{"role":"user","content":"hi"}])" +
                                std::string(fields) + "}");
  auto parsed = parse_chat_request(body, kLimits);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? *parsed : ParsedRequest{};
}

ParsedRequest completion(std::string_view fields) {
  auto parsed =
      parse_completion_request(Json::parse(R"({"model":"demo")" + std::string(fields) + "}"), kLimits);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return parsed.ok() ? *parsed : ParsedRequest{};
}

std::string messages(std::string_view list) {
  auto parsed =
      parse_chat_request(Json::parse(R"({"model":"demo","messages":)" + std::string(list) + "}"), kLimits);
  return parsed.ok() ? (*parsed->template_context)["messages"].dump() : parsed.error().message;
}

TEST(ChatRequest, Defaults) {
  const ParsedRequest request = chat("");
  EXPECT_EQ(request.kind, ApiKind::chat);
  EXPECT_EQ(request.model, "demo");
  EXPECT_EQ(request.n, 1);
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.max_tokens || request.temperature || request.top_p || request.top_k || request.seed);
  EXPECT_TRUE(request.skip_special_tokens);
  EXPECT_EQ(request.template_context->dump(),
            R"({"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":true})");
}

TEST(ChatRequest, ReadsWhatItServes) {
  const ParsedRequest request = chat(
      R"(,"temperature":0.5,"top_p":0.9,"top_k":40,"seed":-1,"n":3,"max_tokens":7,"max_completion_tokens":9,)"
      R"("stop":["a","b"],"stop_token_ids":[5,299],"ignore_eos":true,"include_stop_str_in_output":true,)"
      R"("skip_special_tokens":false,"stream":true,"return_token_ids":true,)"
      R"("stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  EXPECT_EQ(request.temperature, 0.5);
  EXPECT_EQ(request.top_p, 0.9);
  EXPECT_EQ(request.top_k, 40);
  EXPECT_EQ(request.seed, ~uint64_t{0});
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_THAT(request.stop_token_ids, ElementsAre(5, 299));
  EXPECT_TRUE(request.ignore_eos && request.include_stop && !request.skip_special_tokens);
  EXPECT_TRUE(request.stream && request.include_usage && request.continuous_usage &&
              request.return_token_ids);
}

TEST(ChatRequest, NullIsAsGoodAsAbsent) {
  const ParsedRequest request = chat(
      R"(,"temperature":null,"stop":null,"seed":null,"n":null,"stream":null,"stream_options":null,"tools":null,)"
      R"("tool_choice":null,"response_format":null,"logit_bias":null,"user":null,"max_tokens":null)");
  EXPECT_EQ(request.n, 1);
  EXPECT_FALSE(request.max_tokens);
}

TEST(ChatRequest, TakesWhatAsksForNothing) {
  chat(
      R"(,"frequency_penalty":0,"presence_penalty":0.0,"logit_bias":{},"response_format":{"type":"text"},)"
      R"("logprobs":false,"top_logprobs":0,"tools":[],"tool_choice":"auto","store":false,"modalities":["text"],)"
      R"("user":"u","metadata":{"a":"b"},"service_tier":"auto","parallel_tool_calls":true,"min_p":0,)"
      R"("repetition_penalty":1.0,"use_beam_search":false,"bad_words":[],"priority":3,"documents":[],)"
      R"("prompt_cache_key":"k","safety_identifier":"s","include_reasoning":true,"add_special_tokens":false)");
}

TEST(ChatRequest, ToolsAreTakenWhenTheModelIsToldNotToUseThem) {
  const ParsedRequest request =
      chat(R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none")");
  EXPECT_FALSE(request.template_context->contains("tools"));
}

TEST(ChatRequest, TemplateArgumentsGoToTheTemplateButNeverReplaceTheMessages) {
  const ParsedRequest request =
      chat(R"(,"chat_template_kwargs":{"enable_thinking":false,"messages":"mine"},"reasoning_effort":"low",)"
           R"("add_generation_prompt":false)");
  EXPECT_EQ(
      request.template_context->dump(),
      R"({"enable_thinking":false,"messages":[{"role":"user","content":"hi"}],"reasoning_effort":"low",)"
      R"("add_generation_prompt":false})");
}

TEST(Messages, BecomeWhatTemplatesExpect) {
  EXPECT_EQ(
      messages(R"([{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"role":"user"}])"),
      R"([{"content":"a\nb","role":"user"}])");
  EXPECT_EQ(messages(R"([{"role":"developer","content":"be brief"}])"),
            R"([{"role":"system","content":"be brief"}])");
  EXPECT_EQ(messages(R"([{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",)"
                     R"("function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]},)"
                     R"({"role":"tool","tool_call_id":"c","content":"3"}])"),
            R"([{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function",)"
            R"("function":{"name":"f","arguments":{"z":1,"a":2}}}]},)"
            R"({"role":"tool","tool_call_id":"c","content":"3"}])");
}

TEST(CompletionRequest, EveryFormOfPrompt) {
  EXPECT_THAT(completion(R"(,"prompt":"x")").prompts, ElementsAre(Prompt("x")));
  EXPECT_THAT(completion(R"(,"prompt":["x","y"])").prompts, ElementsAre(Prompt("x"), Prompt("y")));
  EXPECT_THAT(completion(R"(,"prompt":[1,2])").prompts, ElementsAre(Prompt(std::vector<int32_t>{1, 2})));
  EXPECT_THAT(completion(R"(,"prompt":[[1],[2,3]])").prompts,
              ElementsAre(Prompt(std::vector<int32_t>{1}), Prompt(std::vector<int32_t>{2, 3})));
}

TEST(CompletionRequest, TakesWhatAsksForNothing) {
  const ParsedRequest request =
      completion(R"(,"prompt":"x","best_of":2,"n":2,"echo":false,"suffix":"","logprobs":null,"stop":"a")");
  EXPECT_EQ(request.n, 2);
  EXPECT_THAT(request.stop, ElementsAre("a"));
  EXPECT_TRUE(request.add_special_tokens);
}

}  // namespace
}  // namespace sluice::server
