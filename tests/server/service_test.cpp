// The whole front over loopback, with engines that the test drives.
#include "server/service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/log.h"
#include "fakes.h"
#include "raw_client.h"

namespace sluice::server {
namespace {

using engine::Finish;
using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr int32_t kHello = 256;
constexpr int32_t kWorld = 257;
constexpr int32_t kEnd = 259;

const std::string kChat = "/v1/chat/completions";
const std::string kCompletions = "/v1/completions";

std::string chat_body(std::string_view more = "") {
  return fmt::format(R"({{"model":"demo","messages":[{{"role":"user","content":"hi"}}]{}}})", more);
}

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() { log::set_level(log::Level::error); }
  ~ServiceTest() override { stop(); }

  void start() {
    service_ = std::make_unique<Service>(options_, fake_model(), client_);
    HttpOptions http;
    http.tick = milliseconds(20);
    http.max_unsent_bytes = max_unsent_bytes_;
    auto server = HttpServer::listen(http, *service_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
    service_->attach(*server_);
    post_ = server_->poster();
    thread_ = std::thread([this] { server_->run(); });
  }
  void stop() {
    if (thread_.joinable()) {
      post_([this] { server_->stop(); });
      thread_.join();
    }
    server_.reset();
    service_.reset();
  }
  RawClient connect(int receive_buffer = 0) { return RawClient(server_->port(), receive_buffer); }
  RawClient::Reply ask(const std::string& request) {
    RawClient client = connect();
    client.send(request);
    return client.read_reply();
  }
  RawClient::Reply get(const std::string& path, const std::string& headers = "") {
    return ask(get_request(path, headers));
  }

  ServiceOptions options_;
  size_t max_unsent_bytes_ = 256u << 10;
  FakeEngineClient client_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> server_;
  std::function<void(HttpServer::Task)> post_;
  std::thread thread_;
};

std::string error_code(const RawClient::Reply& reply) {
  const Json body = Json::parse(reply.body, nullptr, false);
  if (!body.is_object() || !body.contains("error")) return "no error object: " + reply.body;
  return body["error"]["code"].is_string() ? body["error"]["code"].get<std::string>() : "null";
}

TEST_F(ServiceTest, AnswersAChat) {
  start();
  RawClient client = connect();
  client.send(post_request(kChat, chat_body(R"(,"seed":5,"temperature":0,"max_tokens":9)")));
  ASSERT_TRUE(client_.wait_submitted(1));
  const engine::Request request = client_.request(1);
  EXPECT_EQ(std::string(request.prompt.begin(), request.prompt.end()), "<user>hi<assistant>");
  EXPECT_EQ(request.sampling.seed, 5u);
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.max_tokens, 9);
  client_.give(1, kHello);
  client_.give(1, kWorld);
  client_.give(1, kEnd, Finish::stop);
  const auto reply = client.read_reply();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.header("content-type"), "application/json");
  const Json body = Json::parse(reply.body);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello world");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
  EXPECT_FALSE(client_.cancelled(1));
}

TEST_F(ServiceTest, StreamsEachTokenWhenItComes) {
  start();
  RawClient client = connect();
  client.send(post_request(kChat, chat_body(R"(,"stream":true)")));
  ASSERT_TRUE(client_.wait_submitted(1));
  client_.give(1, kHello);
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(head, HasSubstr("Cache-Control: no-cache"));
  EXPECT_THAT(client.read_until("Hello"), HasSubstr(R"("delta":{"role":"assistant","content":""})"));
  client_.give(1, kWorld, Finish::length);
  EXPECT_THAT(client.read_until("data: [DONE]\n\n\r\n0\r\n\r\n"), HasSubstr(R"("finish_reason":"length")"));
}

TEST_F(ServiceTest, ASilentStreamCarriesComments) {
  options_.ping_after = milliseconds(30);
  start();
  RawClient client = connect();
  client.send(post_request(kChat, chat_body(R"(,"stream":true)")));
  EXPECT_THAT(client.read_until(": ping\n\n"), HasSubstr("text/event-stream"));
  client.read_until(": ping\n\n");
  client_.give(1, kHello, Finish::length);
  EXPECT_THAT(client.read_until("[DONE]"), HasSubstr("Hello"));
}

TEST_F(ServiceTest, DrawsASeedForEachRequestWithoutOne) {
  start();
  client_.answer_all({kEnd});
  ask(post_request(kChat, chat_body(R"(,"n":2)")));
  ask(post_request(kChat, chat_body()));
  EXPECT_NE(client_.request(1).sampling.seed, client_.request(2).sampling.seed);
  EXPECT_NE(client_.request(1).sampling.seed, client_.request(3).sampling.seed);
}

TEST_F(ServiceTest, AClientThatLeavesIsCancelledInTheEngine) {
  start();
  RawClient waiting = connect();
  waiting.send(post_request(kChat, chat_body(R"(,"n":2)")));
  ASSERT_TRUE(client_.wait_submitted(2));
  waiting.close();
  EXPECT_TRUE(client_.wait_cancelled(1));
  EXPECT_TRUE(client_.wait_cancelled(2));

  RawClient streaming = connect();
  streaming.send(post_request(kChat, chat_body(R"(,"stream":true)")));
  ASSERT_TRUE(client_.wait_submitted(3));
  client_.give(3, kHello);
  streaming.read_until("Hello");
  streaming.close();
  EXPECT_TRUE(client_.wait_cancelled(3));
  // What the engine sent before it noticed goes nowhere.
  client_.give(3, kWorld);
  client_.give(3, kEnd, Finish::stop);
  EXPECT_EQ(get("/live").status, 200);
}

TEST_F(ServiceTest, AStopStringCancelsTheRestInTheEngine) {
  start();
  RawClient client = connect();
  client.send(post_request(kChat, chat_body(R"(,"stop":"lo")")));
  ASSERT_TRUE(client_.wait_submitted(1));
  client_.give(1, kHello);
  const Json body = Json::parse(client.read_reply().body);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hel");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(client_.wait_cancelled(1));
}

TEST_F(ServiceTest, ASlowReaderIsCancelledAndOthersGoOn) {
  max_unsent_bytes_ = 20'000;
  start();
  RawClient slow = connect(1);
  slow.send(post_request(kChat, chat_body(R"(,"stream":true)")));
  ASSERT_TRUE(client_.wait_submitted(1));
  for (int i = 0; i < 1'000'000 && !client_.cancelled(1); ++i) client_.give(1, kHello);
  EXPECT_TRUE(client_.wait_cancelled(1));
  EXPECT_EQ(get("/live").status, 200);
}

TEST_F(ServiceTest, ErrorsOfTheEngineHaveTheirStatus) {
  start();
  RawClient client = connect();
  client.send(post_request(kChat, chat_body()));
  ASSERT_TRUE(client_.wait_submitted(1));
  client_.fail(1, unavailable("rank 1 is lost"));
  const auto lost = client.read_reply();
  EXPECT_EQ(lost.status, 503);
  EXPECT_THAT(lost.body, HasSubstr("rank 1 is lost"));

  // Before the first token, a stream has not begun: the status still says it.
  client.send(post_request(kChat, chat_body(R"(,"stream":true)")));
  ASSERT_TRUE(client_.wait_submitted(2));
  client_.fail(2, internal_error("broken"));
  EXPECT_EQ(client.read_reply().status, 500);

  client.send(post_request(kChat, chat_body(R"(,"stream":true)")));
  ASSERT_TRUE(client_.wait_submitted(3));
  client_.give(3, kHello);
  client_.fail(3, internal_error("broken"));
  const auto broken = client.read_reply();
  EXPECT_EQ(broken.status, 200);
  EXPECT_THAT(broken.body,
              testing::EndsWith("data: {\"error\":{\"message\":\"broken\",\"type\":\"server_error\","
                                "\"param\":null,\"code\":\"internal_error\"}}\n\n"));
}

TEST_F(ServiceTest, OneFailedChoiceCancelsTheOthers) {
  start();
  RawClient client = connect();
  client.send(post_request(kChat, chat_body(R"(,"n":2)")));
  ASSERT_TRUE(client_.wait_submitted(2));
  client_.fail(1, unavailable("rank 0 is lost"));
  EXPECT_EQ(client.read_reply().status, 503);
  EXPECT_TRUE(client_.wait_cancelled(2));
}

TEST_F(ServiceTest, RefusalsOfTheEngineHaveTheirStatus) {
  start();
  client_.refuse_with(Status(Code::resource_exhausted, "1024 requests wait, the limit"));
  const auto full = ask(post_request(kChat, chat_body()));
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(full.header("retry-after"), "1");
  EXPECT_EQ(error_code(full), "queue_full");
  client_.refuse_with(invalid_argument("the prompt does not fit the KV cache"));
  EXPECT_EQ(ask(post_request(kChat, chat_body())).status, 400);
}

TEST_F(ServiceTest, NothingIsServedBeforeTheClusterIsReady) {
  client_.set_ready(false, "rank 1: loading");
  start();
  for (const std::string path : {"/ready", "/health"}) {
    const auto reply = get(path);
    EXPECT_EQ(reply.status, 503) << path;
    EXPECT_THAT(reply.body, HasSubstr("rank 1: loading"));
  }
  const Json health = Json::parse(get("/health").body);
  EXPECT_EQ(health["status"], "not_ready");
  EXPECT_TRUE(health["endpoints"].empty());
  EXPECT_TRUE(health["instances"].empty());
  for (const auto& reply :
       {get("/v1/models"), get("/v1/models/demo"), ask(post_request(kChat, chat_body()))}) {
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(reply.header("retry-after"), "5");
    EXPECT_EQ(error_code(reply), "not_ready");
  }
  EXPECT_EQ(get("/live").status, 200);
  EXPECT_EQ(client_.submitted(), 0u);
  client_.set_ready(true, "ready");
  EXPECT_EQ(get("/ready").status, 200);
}

TEST_F(ServiceTest, HealthIsWhatDynamosProbesAskFor) {
  start();
  const auto reply = get("/health");
  EXPECT_EQ(reply.status, 200);
  const Json health = Json::parse(reply.body);
  EXPECT_EQ(health["status"], "ready");
  EXPECT_EQ(health["endpoints"], Json::array({"dyn://sluice.backend.generate"}));
  ASSERT_EQ(health["instances"].size(), 2u);
  EXPECT_EQ(health["instances"][1]["component"], "backend");
  EXPECT_EQ(health["instances"][1]["endpoint"], "generate");
  EXPECT_EQ(health["instances"][1]["namespace"], "sluice");
  EXPECT_EQ(health["instances"][1]["instance_id"], 1);
  EXPECT_EQ(health["epoch"].dump(), R"({"term":1,"number":3})");
  EXPECT_EQ(health["fabric"]["ranks"][0]["provider"], "local");
  EXPECT_EQ(health["fabric"]["ranks"][0]["peers"][0]["bytes_sent"], 4096);
}

TEST_F(ServiceTest, Models) {
  start();
  const Json list = Json::parse(get("/v1/models").body);
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "demo");
  EXPECT_EQ(list["data"][0]["object"], "model");
  EXPECT_EQ(list["data"][0]["created"], 1'700'000'000);
  EXPECT_EQ(Json::parse(get("/v1/models/demo").body)["id"], "demo");
  EXPECT_EQ(get("/v1/models/models/demo").status, 200);
  EXPECT_EQ(get("/v1/models/models%2Fdemo").status, 200);
  const auto unknown = get("/v1/models/gpt-4");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(error_code(unknown), "model_not_found");
}

struct Refused {
  std::string name;
  std::string request;
  int status;
  std::string says;
};

TEST_F(ServiceTest, RefusesAtTheHead) {
  start();
  const std::vector<Refused> cases = {
      {"unknown path", get_request("/v2"), 404, "Invalid URL (GET /v2)"},
      {"unknown path", post_request("/v1/embeddings", "{}"), 404, "Invalid URL (POST /v1/embeddings)"},
      {"model without a name", get_request("/v1/models/"), 404, "the model '' does not exist"},
      {"wrong method", get_request(kChat), 405, "use POST"},
      {"wrong method", post_request("/v1/models", "{}"), 405, "use GET, HEAD"},
      {"wrong method", "DELETE /health HTTP/1.1\r\nHost: t\r\n\r\n", 405, "use GET, HEAD"},
      {"unknown method", "BREW / HTTP/1.1\r\nHost: t\r\n\r\n", 405, "BREW"},
      {"form",
       "POST " + kChat +
           " HTTP/1.1\r\nHost: t\r\nContent-Type: application/x-www-form-urlencoded\r\n"
           "Content-Length: 2\r\n\r\n{}",
       415, "application/json"},
      {"no type", "POST " + kChat + " HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}", 415, "missing"},
      {"compressed", post_request(kChat, "{}", "Content-Encoding: gzip\r\n"), 415, "gzip"},
      {"body over the limit", "POST " + kChat + " HTTP/1.1\r\nHost: t\r\nContent-Length: 8388609\r\n\r\n",
       413, "8388608"},
      {"not JSON", post_request(kChat, "{"), 400, "JSON"},
      {"no body", "POST " + kChat + " HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n\r\n", 400,
       "JSON"},
  };
  for (const Refused& item : cases) {
    SCOPED_TRACE(item.name);
    const auto reply = ask(item.request);
    EXPECT_EQ(reply.status, item.status) << reply.body;
    const Json body = Json::parse(reply.body, nullptr, false);
    ASSERT_TRUE(body.is_object() && body.contains("error")) << reply.body;
    EXPECT_EQ(body["error"]["type"], "invalid_request_error");
    EXPECT_THAT(body["error"]["message"].get<std::string>(), HasSubstr(item.says));
  }
  EXPECT_EQ(get(kChat).header("allow"), "POST");
  EXPECT_EQ(ask(post_request("/health", "{}")).header("allow"), "GET, HEAD");
  EXPECT_EQ(client_.submitted(), 0u);
}

TEST_F(ServiceTest, TakesJsonWithACharset) {
  start();
  client_.answer_all({kEnd});
  const std::string body = chat_body();
  EXPECT_EQ(ask(fmt::format("POST {} HTTP/1.1\r\nHost: t\r\nContent-Type: Application/JSON; charset=utf-8\r\n"
                            "Content-Length: {}\r\n\r\n{}",
                            kChat, body.size(), body))
                .status,
            200);
}

TEST_F(ServiceTest, AsksForAKeyWhereOneIsSet) {
  options_.api_keys = {"first", "second"};
  start();
  client_.answer_all({kEnd});
  for (const std::string header : {"", "Authorization: Bearer wrong\r\n", "Authorization: Bearer secon\r\n",
                                   "Authorization: Bearer \r\n", "Authorization: Basic second\r\n",
                                   "Authorization: second\r\n", "Authorization: Bearer secondx\r\n"}) {
    const auto reply = get("/v1/models", header);
    EXPECT_EQ(reply.status, 401) << header;
    EXPECT_EQ(error_code(reply), "invalid_api_key");
    EXPECT_EQ(reply.header("www-authenticate"), "Bearer");
  }
  EXPECT_EQ(get("/v1/models", "Authorization: Bearer first\r\n").status, 200);
  EXPECT_EQ(get("/v1/models", "authorization: bearer second\r\n").status, 200);
  EXPECT_EQ(ask(post_request(kChat, chat_body(), "Authorization: Bearer second\r\n")).status, 200);
  for (const std::string path : {"/", "/live", "/ready", "/health", "/metrics"})
    EXPECT_EQ(get(path).status, 200);
}

TEST_F(ServiceTest, AFullQueueOfUnreadRequestsIsRefused) {
  options_.max_queued_jobs = 0;
  start();
  const auto reply = ask(post_request(kChat, chat_body()));
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(error_code(reply), "queue_full");
}

TEST_F(ServiceTest, MetricsCountRequestsAndTokens) {
  start();
  client_.answer_all({kHello, kWorld, kEnd});
  ask(post_request(kChat, chat_body()));
  get("/nowhere");
  const auto reply = get("/metrics");
  EXPECT_THAT(std::string(reply.header("content-type")), HasSubstr("text/plain"));
  EXPECT_THAT(reply.body,
              HasSubstr("sluice_requests_total{route=\"/v1/chat/completions\",status=\"200\"} 1\n"));
  EXPECT_THAT(reply.body, HasSubstr("sluice_requests_total{route=\"other\",status=\"404\"} 1\n"));
  EXPECT_THAT(reply.body, HasSubstr("sluice_generation_tokens_total{model_name=\"demo\"} 3\n"));
  EXPECT_THAT(reply.body, HasSubstr("sluice_prompt_tokens_total{model_name=\"demo\"} 19\n"));
  EXPECT_THAT(reply.body, HasSubstr("sluice_requests_running{model_name=\"demo\"} 0\n"));
  EXPECT_THAT(reply.body, HasSubstr("sluice_ready{model_name=\"demo\"} 1\n"));
}

TEST_F(ServiceTest, ThePageSaysWhatThisIs) {
  start();
  const auto reply = get("/");
  EXPECT_THAT(std::string(reply.header("content-type")), HasSubstr("text/html"));
  EXPECT_THAT(reply.body, HasSubstr("curl -N http://"));
  EXPECT_THAT(reply.body, HasSubstr("<b>demo</b>"));
}

TEST_F(ServiceTest, ADrainFinishesStreamsAndRefusesNewOnes) {
  start();
  RawClient streaming = connect();
  streaming.send(post_request(kChat, chat_body(R"(,"stream":true)")));
  ASSERT_TRUE(client_.wait_submitted(1));
  client_.give(1, kHello);
  streaming.read_until("Hello");
  post_([&] {
    service_->begin_drain();
    server_->drain(seconds(60), [] {});
  });
  const auto ready = get("/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_THAT(ready.body, HasSubstr("shutting down"));
  EXPECT_EQ(get("/live").status, 200);
  EXPECT_EQ(ask(post_request(kChat, chat_body())).status, 503);
  client_.give(1, kWorld, Finish::length);
  EXPECT_THAT(streaming.read_until("[DONE]\n\n\r\n0\r\n\r\n"), testing::EndsWith("0\r\n\r\n"));
  thread_.join();
}

TEST_F(ServiceTest, ADrainThatTakesTooLongEndsStreamsWithAnError) {
  start();
  RawClient streaming = connect();
  streaming.send(post_request(kChat, chat_body(R"(,"stream":true)")));
  ASSERT_TRUE(client_.wait_submitted(1));
  client_.give(1, kHello);
  streaming.read_until("Hello");
  post_([&] {
    service_->begin_drain();
    server_->drain(milliseconds(50), [&] {
      service_->fail_all({.status = 503, .message = "the server is shutting down", .code = "shutting_down"});
    });
  });
  const std::string rest = streaming.read_until("0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr("shutting_down"));
  EXPECT_THAT(rest, testing::Not(HasSubstr("[DONE]")));
  EXPECT_TRUE(client_.wait_cancelled(1));
  thread_.join();
}

TEST_F(ServiceTest, AServerMayEndUnderOpenStreamsAndLateTokens) {
  start();
  RawClient streaming = connect();
  streaming.send(post_request(kChat, chat_body(R"(,"stream":true)")));
  ASSERT_TRUE(client_.wait_submitted(1));
  client_.give(1, kHello);
  streaming.read_until("Hello");
  stop();
  client_.give(1, kWorld);
  EXPECT_TRUE(client_.wait_cancelled(1));
}

TEST_F(ServiceTest, ManyStreamsAtOnceGetTheirOwnTokens) {
  start();
  constexpr size_t kStreams = 64;
  std::vector<RawClient> clients;
  for (size_t i = 0; i < kStreams; ++i) {
    clients.push_back(connect());
    clients.back().send(post_request(
        kCompletions, fmt::format(R"({{"model":"demo","prompt":[{}],"stream":true,"max_tokens":100}})", i)));
  }
  ASSERT_TRUE(client_.wait_submitted(kStreams));
  for (int token = 0; token < 100; ++token) {
    for (size_t id = 1; id <= kStreams; ++id) {
      const int32_t own = static_cast<int32_t>('0') + client_.request(id).prompt[0];
      client_.give(id, own % 128, token == 99 ? Finish::length : Finish::none);
    }
  }
  for (size_t i = 0; i < kStreams; ++i) {
    const std::string events = clients[i].read_reply().body;
    const std::string own = "\"text\":" + Json(std::string(1, static_cast<char>(('0' + i) % 128))).dump();
    size_t count = 0;
    for (size_t at = events.find(own); at != std::string::npos; at = events.find(own, at + 1)) ++count;
    EXPECT_EQ(count, 100u) << i;
  }
}

}  // namespace
}  // namespace sluice::server
