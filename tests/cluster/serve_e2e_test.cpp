// `sluice serve` on the demo model, seen by the one who runs it: what it starts, restarts, refuses and leaves
// behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <set>

#include "../e2e/http_client.h"
#include "../e2e/process.h"
#include "base/unique_fd.h"

namespace sluice::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

bool eventually(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::after(seconds(90));
  while (!condition()) {
    if (deadline.expired()) return false;
    ::usleep(5000);
  }
  return true;
}

class ServeE2e : public ::testing::Test {
 protected:
  // Sockets go where this test can look at what is left.
  ServeE2e() {
    ::mkdtemp(directory_.data());
    ::unsetenv("XDG_RUNTIME_DIR");
    ::setenv("TMPDIR", directory_.c_str(), 1);
  }
  ~ServeE2e() override {
    serve_.reset();
    EXPECT_TRUE(std::filesystem::is_empty(directory_)) << "sockets are left in " << directory_;
    std::filesystem::remove_all(directory_);
  }

  void serve(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{sluice_program(),       "serve",       demo_model(),
                                       "--data-parallel-size", "2",           "--port",
                                       std::to_string(port_),  "--kv-blocks", "128"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    serve_ = std::make_unique<Process>(arguments);
  }
  int ready() const { return get(port_, "/ready").status; }
  void serve_until_ready(std::vector<std::string> more = {}) {
    serve(std::move(more));
    ASSERT_TRUE(eventually([&] { return serve_->output().find("serving ") != std::string::npos; }))
        << serve_->output();
    ASSERT_EQ(ready(), 200);
  }
  pid_t front() const {
    for (const ChildInfo& child : children_of(serve_->pid())) {
      if (child.arguments.size() > 1 && child.arguments[1] == "front") return child.pid;
    }
    return 0;
  }

  std::string directory_ = "/tmp/sluice-e2e-XXXXXX";
  int port_ = free_port();
  std::unique_ptr<Process> serve_;
};

TEST_F(ServeE2e, SaysWhatRuns) {
  serve_until_ready();
  EXPECT_THAT(serve_->output(), HasSubstr("on http://127.0.0.1:" + std::to_string(port_)));
  EXPECT_THAT(serve_->output(), HasSubstr("16 experts of which a token uses 4"));
  EXPECT_THAT(serve_->output(), HasSubstr("local (mapped memory)"));
  EXPECT_THAT(serve_->output(), HasSubstr("(pid " + std::to_string(rank_process(serve_->pid(), 0)) + ", " +
                                          std::to_string(rank_process(serve_->pid(), 1)) + ")"));
}

TEST_F(ServeE2e, KilledSupervisorTakesAllWithIt) {
  serve_until_ready({"--orphan-timeout", "1"});
  const std::vector<ChildInfo> children = children_of(serve_->pid());
  ASSERT_EQ(children.size(), 3u);
  serve_->signal(SIGKILL);
  for (const ChildInfo& child : children) {
    EXPECT_TRUE(eventually([&] { return !alive(child.pid); })) << child.arguments[1];
  }
}

TEST_F(ServeE2e, KilledFrontIsStartedAgain) {
  serve_until_ready();
  const pid_t victim = front();
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGKILL);
  ASSERT_TRUE(eventually([&] { return front() != victim && ready() == 200; })) << serve_->output();
  EXPECT_THAT(serve_->output(),
              HasSubstr("front (pid " + std::to_string(victim) + ") was killed by signal 9; restarting it"));
}

TEST_F(ServeE2e, RankKilledWhileItLoadsIsStartedAgain) {
  serve();
  ASSERT_TRUE(eventually([&] { return rank_process(serve_->pid(), 1) > 0; })) << serve_->output();
  ::kill(rank_process(serve_->pid(), 1), SIGKILL);
  EXPECT_TRUE(eventually([&] { return ready() == 200; })) << serve_->output();
}

TEST_F(ServeE2e, BothRanksKilledAtOnceComeBack) {
  serve_until_ready();
  std::set<pid_t> victims{rank_process(serve_->pid(), 0), rank_process(serve_->pid(), 1)};
  for (const pid_t victim : victims) ::kill(victim, SIGKILL);
  ASSERT_TRUE(eventually([&] { return ready() == 503; })) << serve_->output();
  ASSERT_TRUE(eventually([&] { return ready() == 200; })) << serve_->output();
}

TEST_F(ServeE2e, StopsWhileItIsStillLoading) {
  serve();
  ASSERT_TRUE(eventually([&] { return children_of(serve_->pid()).size() == 3; })) << serve_->output();
  const std::vector<ChildInfo> children = children_of(serve_->pid());
  serve_->signal(SIGTERM);
  EXPECT_EQ(serve_->wait(seconds(60)), 0) << serve_->output();
  for (const ChildInfo& child : children) EXPECT_FALSE(alive(child.pid)) << child.arguments[1];
}

TEST_F(ServeE2e, PortInUseIsOneErrorBeforeAnythingStarts) {
  const UniqueFd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port_));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  serve();
  EXPECT_EQ(serve_->wait(seconds(60)), 2);
  ::usleep(20'000);
  EXPECT_THAT(serve_->output(), HasSubstr("--port " + std::to_string(port_) + ": Address already in use"));
  EXPECT_THAT(serve_->output(), Not(HasSubstr("[rank")));
}

}  // namespace
}  // namespace sluice::e2e
