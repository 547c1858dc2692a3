// `sluice serve` on the demo model, as a client sees it.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "http_client.h"
#include "process.h"

namespace sluice::e2e {
namespace {

using nlohmann::json;

class Server {
 public:
  explicit Server(int ranks, std::vector<std::string> more = {}) : port_(free_port()) {
    std::vector<std::string> arguments = {
        sluice_program(),      "serve",  demo_model(),         "--data-parallel-size",
        std::to_string(ranks), "--port", std::to_string(port_)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    process_ = std::make_unique<Process>(arguments);
  }
  int port() const { return port_; }
  Process& process() { return *process_; }

  // Polls /ready until it says `status`; false after `limit`.
  bool wait_ready(int status, Nanos limit) {
    const Deadline deadline = Deadline::after(limit);
    while (!deadline.expired()) {
      if (get(port_, "/ready").status == status) return true;
      if (process_->wait(0) >= 0) return false;
      usleep(5000);
    }
    return false;
  }

 private:
  int port_;
  std::unique_ptr<Process> process_;
};

json references() {
  std::ifstream file(demo_model() + "/reference.json");
  return json::parse(file);
}

json chat_request(const json& messages, bool stream = false) {
  return {
      {"model", "demo"}, {"messages", messages}, {"temperature", 0}, {"max_tokens", 128}, {"stream", stream}};
}

std::string chat(int port, const json& messages) {
  const Reply reply = post(port, "/v1/chat/completions", chat_request(messages).dump());
  const json body = json::parse(reply.body, nullptr, false);
  if (reply.status != 200 || !body.is_object())
    return "status " + std::to_string(reply.status) + ": " + reply.body;
  return body["choices"][0]["message"]["content"];
}

std::string stream_text(const std::string& events) {
  std::string text;
  size_t at = 0;
  while ((at = events.find("data: ", at)) != std::string::npos) {
    const size_t end = events.find("\n\n", at);
    const std::string data = events.substr(at + 6, end - at - 6);
    at = end;
    if (data == "[DONE]") return text;
    const json chunk = json::parse(data, nullptr, false);
    if (!chunk.contains("choices") || chunk["choices"].empty()) continue;
    const json& delta = chunk["choices"][0]["delta"];
    if (delta.contains("content") && delta["content"].is_string())
      text += delta["content"].get<std::string>();
  }
  return text + " (no [DONE])";
}

class ServeTest : public testing::TestWithParam<std::tuple<int, std::string>> {};

TEST_P(ServeTest, GivesTheReferenceTextAlsoAmongManyStreams) {
  const auto [ranks, fabric] = GetParam();
  Server server(ranks, {"--fabric", fabric, "--deterministic"});
  ASSERT_TRUE(server.wait_ready(200, seconds(60))) << server.process().output();
  std::vector<std::pair<json, std::string>> cases;
  for (const json& reference : references()) {
    const std::string alone = chat(server.port(), reference["messages"]);
    if (reference["messages"][0]["content"] == "Who are you?") {
      EXPECT_EQ(alone, reference["greedy_text"]);
    }
    cases.emplace_back(reference["messages"], alone);
  }
  for (int i = 0; i < 26; ++i) {
    const json messages = {
        {{"role", "user"}, {"content", "Tell me a story about " + std::string(1 + i * 3, 'x')}}};
    cases.emplace_back(messages, chat(server.port(), messages));
  }
  std::vector<std::string> together(cases.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < cases.size(); ++i) {
    clients.emplace_back([&, i] {
      const Reply reply = post(server.port(), "/v1/chat/completions",
                               chat_request(cases[i].first, true).dump(), seconds(120));
      together[i] = reply.status == 200 ? stream_text(reply.body) : reply.body;
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(together[i], cases[i].second) << cases[i].first;
}

INSTANTIATE_TEST_SUITE_P(RanksAndFabrics, ServeTest,
                         testing::Values(std::tuple(1, "local"), std::tuple(2, "local"),
                                         std::tuple(4, "local"), std::tuple(2, "tcp"), std::tuple(4, "tcp")),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "_ranks_" +
                                  std::get<1>(info.param);
                         });

TEST(Serve, ReadyFollowsTheRanks) {
  Server server(2);
  ASSERT_TRUE(server.wait_ready(200, seconds(60))) << server.process().output();
  const json who = {{{"role", "user"}, {"content", "Who are you?"}}};
  const std::string answer = chat(server.port(), who);
  for (const int victim : {1, 0}) {
    const pid_t pid = rank_process(server.process().pid(), victim);
    ASSERT_GT(pid, 0) << server.process().output();
    kill(pid, SIGKILL);
    EXPECT_TRUE(server.wait_ready(503, seconds(2))) << "rank " << victim << "\n" << server.process().output();
    EXPECT_EQ(get(server.port(), "/live").status, 200);
    ASSERT_TRUE(server.wait_ready(200, seconds(60))) << server.process().output();
    EXPECT_EQ(chat(server.port(), who), answer);
    EXPECT_NE(server.process().output().find("rank " + std::to_string(victim)), std::string::npos);
    EXPECT_NE(server.process().output().find("signal 9"), std::string::npos) << server.process().output();
  }
}

TEST(Serve, NeverSaysReadyBeforeItCanAnswer) {
  Server server(2);
  const Deadline deadline = Deadline::after(seconds(60));
  while (get(server.port(), "/ready").status != 200)
    ASSERT_FALSE(deadline.expired()) << server.process().output();
  // The very first request after the first 200 must succeed.
  const Reply reply = post(server.port(), "/v1/completions",
                           json{{"model", "demo"}, {"prompt", "Once"}, {"max_tokens", 1}}.dump());
  EXPECT_EQ(reply.status, 200) << reply.body;
}

TEST(Serve, CtrlCStopsEverything) {
  Server server(2);
  ASSERT_TRUE(server.wait_ready(200, seconds(60))) << server.process().output();
  const std::vector<ChildInfo> children = children_of(server.process().pid());
  EXPECT_GE(children.size(), 3u);  // two ranks and the front
  server.process().signal(SIGINT);
  EXPECT_EQ(server.process().wait(seconds(15)), 0) << server.process().output();
  for (const ChildInfo& child : children) EXPECT_FALSE(alive(child.pid)) << child.arguments[1];
}

TEST(Serve, ARankThatCrashesLeavesNoFileBehind) {
  const auto files = [] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(".")) names.insert(entry.path().filename());
    return names;
  };
  const std::set<std::string> before = files();
  Server server(2);
  ASSERT_TRUE(server.wait_ready(200, seconds(60))) << server.process().output();
  kill(rank_process(server.process().pid(), 1), SIGSEGV);
  EXPECT_TRUE(server.wait_ready(503, seconds(2))) << server.process().output();
  ASSERT_TRUE(server.wait_ready(200, seconds(60))) << server.process().output();
  for (const std::string& name : files())
    EXPECT_TRUE(before.contains(name) || !name.ends_with(".btr")) << name;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Anyone on the machine can read a command line.
TEST(Serve, AKeyIsOnNoCommandLine) {
  ::setenv("SLUICE_API_KEY", "sk-secret,sk-other", 1);
  Server server(1);
  ::unsetenv("SLUICE_API_KEY");
  ASSERT_TRUE(server.wait_ready(200, seconds(60))) << server.process().output();
  EXPECT_EQ(get(server.port(), "/v1/models").status, 401);
  std::vector<pid_t> processes{server.process().pid()};
  for (const ChildInfo& child : children_of(server.process().pid())) processes.push_back(child.pid);
  EXPECT_EQ(processes.size(), 3u);
  for (const pid_t pid : processes) {
    const std::string line = bytes_of("/proc/" + std::to_string(pid) + "/cmdline");
    EXPECT_NE(line.find("sluice"), std::string::npos) << line;
    EXPECT_EQ(line.find("sk-"), std::string::npos) << line;
  }
  EXPECT_EQ(server.process().output().find("sk-"), std::string::npos);
}

TEST(Serve, HealthShowsTheFabricThatWasAskedFor) {
  Server server(2, {"--fabric", "tcp"});
  ASSERT_TRUE(server.wait_ready(200, seconds(60))) << server.process().output();
  const Reply reply = get(server.port(), "/health");
  EXPECT_EQ(reply.status, 200);
  const json health = json::parse(reply.body);
  EXPECT_FALSE(health["endpoints"].empty());
  EXPECT_EQ(health["instances"].size(), 2u);
  EXPECT_NE(reply.body.find("tcp"), std::string::npos) << reply.body;
}

struct Bad {
  std::string name;
  std::string path;
  std::string body;
  int status;
  std::string says;
};

TEST(Serve, BadInputGetsOneClearErrorAndTheServerGoesOn) {
  Server server(2);
  ASSERT_TRUE(server.wait_ready(200, seconds(60))) << server.process().output();
  const std::string chat_path = "/v1/chat/completions";
  const std::string completions = "/v1/completions";
  const std::string long_prompt(20'000, 'x');
  const std::vector<Bad> bad = {
      {"malformed JSON", chat_path, R"({"model": "demo", )", 400, "JSON"},
      {"empty prompt", completions, R"({"model":"demo","prompt":""})", 400, "prompt"},
      {"no messages", chat_path, R"({"model":"demo","messages":[]})", 400, "messages"},
      {"negative temperature", chat_path,
       R"({"model":"demo","temperature":-1,"messages":[{"role":"user","content":"x"}]})", 400, "temperature"},
      {"prompt over the context", completions, json{{"model", "demo"}, {"prompt", long_prompt}}.dump(), 400,
       "1024"},
      {"unknown model", chat_path, R"({"model":"gpt","messages":[{"role":"user","content":"x"}]})", 404,
       "gpt"},
      {"token out of the vocabulary", completions, R"({"model":"demo","prompt":[99999]})", 400, "8192"},
      {"body over the limit", completions, json{{"prompt", std::string(16u << 20, 'x')}}.dump(), 413,
       "limit"},
  };
  for (const Bad& item : bad) {
    SCOPED_TRACE(item.name);
    const Reply reply = post(server.port(), item.path, item.body);
    EXPECT_EQ(reply.status, item.status) << reply.body;
    const json body = json::parse(reply.body, nullptr, false);
    ASSERT_TRUE(body.is_object() && body.contains("error")) << reply.body;
    EXPECT_NE(body["error"]["message"].get<std::string>().find(item.says), std::string::npos) << reply.body;
  }
  EXPECT_EQ(get(server.port(), "/nowhere").status, 404);
  EXPECT_EQ(get(server.port(), "/ready").status, 200);
  const json who = {{{"role", "user"}, {"content", "Who are you?"}}};
  EXPECT_EQ(chat(server.port(), who).rfind("I am a small", 0), 0u);
}

TEST(Serve, RefusesWhatCannotStartWithOneError) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"serve", "/nowhere"}, "/nowhere"},
      {{"serve", demo_model(), "--data-parallel-size", "17"}, "16 experts"},
      {{"serve", demo_model(), "--fabric", "efa-direct"}, "efa-direct"},
      {{"serve", demo_model(), "--fabric", "carrier-pigeon"}, "carrier-pigeon"},
      {{"serve", demo_model(), "--dtype", "int3"}, "int3"},
      {{"serve", demo_model(), "--no-such-flag"}, "--no-such-flag"},
  };
  for (const auto& [arguments, says] : cases) {
    SCOPED_TRACE(says);
    std::vector<std::string> all = {sluice_program()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    all.insert(all.end(), {"--port", std::to_string(free_port())});
    const Finished finished = run(all, seconds(60));
    EXPECT_NE(finished.status, 0);
    EXPECT_NE(finished.output.find(says), std::string::npos) << finished.output;
  }
}

}  // namespace
}  // namespace sluice::e2e
