// The files of tests/data/server. replies/*.json: a request, what the engine gives for it, and the exact
// bytes that the client gets. bad_requests.json: bodies and the error that each is answered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "fakes.h"
#include "server/prepare.h"
#include "server/reply_writer.h"

namespace sluice::server {
namespace {

using Json = nlohmann::ordered_json;

const std::string kData = SLUICE_SOURCE_DIR "/tests/data/server/";

ApiKind kind_of(const Json& item) {
  return item.at("path") == "/v1/chat/completions" ? ApiKind::chat : ApiKind::completion;
}

// ["piece or id", choice, finish]: choice 0 and no finish where left out.
struct Step {
  int choice = 0;
  engine::Output output;
};

Step read_step(const Json& json, const FakeTokenizer& tokenizer, std::vector<int>& given) {
  Step step;
  const Json& token = json.at(0);
  step.choice = json.size() > 1 ? json.at(1).get<int>() : 0;
  const std::string finish = json.size() > 2 ? json.at(2).get<std::string>() : "";
  engine::Output& output = step.output;
  if (token.is_number()) output.token = token;
  if (token.is_string()) output.token = tokenizer.encode(token.get<std::string>()).at(0);
  output.index = given[static_cast<size_t>(step.choice)]++;
  if (finish == "stop") {
    output.finish = engine::Finish::stop;
    output.stop_token = output.token;
  } else if (finish == "length") {
    output.finish = engine::Finish::length;
  } else if (!finish.empty()) {
    output.finish = engine::Finish::error;
    output.error = unavailable(finish);
  }
  return step;
}

std::string answer(const Json& item) {
  const auto pieces = item.value("pieces", std::vector<std::string>{});
  const FakeTokenizer tokenizer(pieces);
  const ModelContext model = fake_model(pieces);
  auto prepared = prepare_request(kind_of(item), item.at("request").dump(), model);
  if (!prepared.ok()) return prepared.error().body();
  const char* id = prepared->parsed.kind == ApiKind::chat ? "chatcmpl-1" : "cmpl-1";
  ReplyWriter writer(
      *prepared, {.id = id, .created = model.created, .model = model.served_name, .fingerprint = "fp_test"},
      &tokenizer);
  std::vector<int> given(static_cast<size_t>(prepared->choices()));
  std::string bytes;
  for (const Json& json : item.at("tokens")) {
    const Step step = read_step(json, tokenizer, given);
    bytes += writer.feed(step.choice, step.output);
  }
  if (writer.error()) {
    return prepared->parsed.stream ? bytes + ReplyWriter::error_event(*writer.error())
                                   : writer.error()->body();
  }
  if (!writer.finished()) return bytes + "(not finished)";
  return bytes + writer.finish();
}

class ReplyFileTest : public testing::TestWithParam<std::string> {};

TEST_P(ReplyFileTest, GivesExactlyTheseBytes) {
  std::ifstream file(kData + "replies/" + GetParam() + ".json");
  const Json item = Json::parse(file);
  std::string expected;
  if (item.contains("events")) {
    for (const Json& event : item.at("events")) expected += event.get<std::string>() + "\n\n";
  } else {
    expected = item.at("body");
  }
  EXPECT_EQ(answer(item), expected) << item.value("about", "");
}

std::vector<std::string> reply_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kData + "replies")) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, ReplyFileTest, testing::ValuesIn(reply_files()),
                         [](const auto& info) { return info.param; });

TEST(BadRequests, EachGetsItsError) {
  std::ifstream file(kData + "bad_requests.json");
  const Json items = Json::parse(file);
  const ModelContext model = fake_model({"<|end|>"}, 64);
  for (const Json& item : items) {
    const Json& body = item.at("body");
    const std::string text = body.is_string() ? body.get<std::string>() : body.dump();
    SCOPED_TRACE(text.substr(0, 200));
    const auto prepared = prepare_request(kind_of(item), text, model);
    ASSERT_FALSE(prepared.ok());
    const ApiError& error = prepared.error();
    EXPECT_EQ(error.status, item.value("status", 400));
    EXPECT_EQ(error.param, item.value("param", "")) << error.message;
    EXPECT_EQ(error.code, item.value("code", "")) << error.message;
    EXPECT_THAT(error.message, testing::HasSubstr(item.at("says").get<std::string>()));
    EXPECT_TRUE(Json::accept(error.body())) << error.body();
  }
}

}  // namespace
}  // namespace sluice::server
