// run_front on the demo checkpoint, with engines that the test drives; and what it refuses to start with.
#include "server/front.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/log.h"
#include "fakes.h"
#include "raw_client.h"
#include "server/http_server.h"

namespace sluice::server {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::string kDemo = SLUICE_SOURCE_DIR "/models/demo";

// A copy of the demo's files, without its weights, to be changed by a test.
class CopiedModel {
 public:
  CopiedModel() : directory_(testing::TempDir() + "/server_front_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(directory_);
    for (const char* name :
         {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
      std::filesystem::copy_file(kDemo + "/" + name, directory_ + "/" + name);
    }
  }
  ~CopiedModel() { std::filesystem::remove_all(directory_); }
  const std::string& directory() const { return directory_; }
  std::string file(const std::string& name) const { return directory_ + "/" + name; }
  void change(const std::string& name, const std::string& key, const Json& value) const {
    Json json = Json::parse(std::ifstream(file(name)));
    json[key] = value;
    std::ofstream(file(name)) << json;
  }

 private:
  std::string directory_;
};

std::string error_of(const Result<ModelContext>& result) {
  return result.ok() ? "no error" : result.status().message();
}

TEST(ModelContext, IsReadFromTheCheckpoint) {
  const auto model = load_model_context(kDemo + "/", "", 0);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->served_name, "demo");
  EXPECT_TRUE(model->has_name(kDemo + "/"));
  EXPECT_FALSE(model->has_name("other"));
  EXPECT_EQ(model->vocab_size, 8192);
  EXPECT_EQ(model->max_model_len, 1024);
  EXPECT_FLOAT_EQ(static_cast<float>(*model->temperature), 0.7F);
  EXPECT_EQ(model->top_k, 40);
  EXPECT_NE(model->chat_template, nullptr);
  const auto named = load_model_context(kDemo, "small", 100);
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->served_name, "small");
  EXPECT_EQ(named->max_model_len, 100);
}

TEST(ModelContext, RefusesATokenizerLargerThanTheVocabulary) {
  const CopiedModel model;
  model.change("config.json", "vocab_size", 4096);
  EXPECT_THAT(error_of(load_model_context(model.directory(), "", 0)),
              testing::AllOf(HasSubstr("8192"), HasSubstr("4096"), HasSubstr("tokenizer.json")));
}

TEST(ModelContext, DoesWithoutATokenizerAndWithoutATemplate) {
  const CopiedModel model;
  std::filesystem::remove(model.file("tokenizer_config.json"));
  const auto without_template = load_model_context(model.directory(), "", 0);
  ASSERT_TRUE(without_template.ok()) << without_template.status().message();
  EXPECT_EQ(without_template->chat_template, nullptr);
  EXPECT_NE(without_template->tokenizer, nullptr);
  std::filesystem::remove(model.file("tokenizer.json"));
  const auto without_tokenizer = load_model_context(model.directory(), "", 0);
  ASSERT_TRUE(without_tokenizer.ok()) << without_tokenizer.status().message();
  EXPECT_EQ(without_tokenizer->tokenizer, nullptr);
}

TEST(ModelContext, NamesTheFileThatIsMissingOrBroken) {
  EXPECT_THAT(error_of(load_model_context("/nowhere/model", "", 0)), HasSubstr("/nowhere/model"));
  const CopiedModel model;
  std::ofstream(model.file("tokenizer.json")) << "{";
  EXPECT_THAT(error_of(load_model_context(model.directory(), "", 0)), HasSubstr("tokenizer.json"));
}

TEST(Front, ServesUntilItIsToldToStop) {
  log::set_level(log::Level::error);
  const int port = [] {
    struct NoHandler : HttpHandler {
      std::optional<HttpReply> refuse(const HttpRequest&) override { return {}; }
      void handle(HttpRequest, std::shared_ptr<Responder>) override {}
      HttpReply protocol_error(int, std::string) override { return {}; }
      void finished(const HttpAccess&) override {}
      void tick(Nanos) override {}
    } handler;
    return HttpServer::listen({}, handler).value()->port();  // free a moment later
  }();
  FakeEngineClient engines;
  const UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  FrontOptions options;
  options.port = port;
  options.model_directory = kDemo;
  options.api_keys = {"key"};
  options.max_body_bytes = 1000;
  int status = -1;
  std::thread front([&] { status = run_front(options, engines, stop.get()); });

  RawClient::Reply live;
  for (int i = 0; i < 1000 && live.status != 200; ++i) {
    RawClient client(port);
    if (client.send(get_request("/live"))) live = client.read_reply();
    if (live.status != 200) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_EQ(live.status, 200);
  RawClient client(port);
  client.send(post_request("/v1/chat/completions",
                           R"({"model":"demo","messages":[{"role":"user","content":"Hi"}]})",
                           "Authorization: Bearer key\r\n"));
  ASSERT_TRUE(engines.wait_submitted(1));
  EXPECT_EQ(engines.request(1).sampling.top_k, 40);
  EXPECT_EQ(engines.request(1).prompt[0], 1);  // <|im_start|>
  RawClient large(port);
  large.send(post_request("/v1/completions", std::string(1001, ' '), "Authorization: Bearer key\r\n"));
  EXPECT_EQ(large.read_reply().status, 413);

  ASSERT_EQ(::eventfd_write(stop.get(), 1), 0);
  engines.give(1, 2, engine::Finish::stop);
  EXPECT_EQ(client.read_reply().status, 200);
  front.join();
  EXPECT_EQ(status, 0);
}

TEST(Front, SaysNoToWhatItCannotServe) {
  log::set_level(log::Level::error);
  FakeEngineClient engines;
  const UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  FrontOptions options;
  options.model_directory = "/nowhere";
  EXPECT_EQ(run_front(options, engines, stop.get()), 1);
  options.model_directory = kDemo;
  options.host = "192.0.2.1";
  EXPECT_EQ(run_front(options, engines, stop.get()), 1);
}

}  // namespace
}  // namespace sluice::server
