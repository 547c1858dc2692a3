// Ranks in processes of their own, and what is left when one of them is killed.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "exchange_loop.h"
#include "file_bootstrap.h"

extern char** environ;

namespace sluice::fabric {
namespace {

class Processes : public testing::TestWithParam<std::string> {
 protected:
  Processes() {
    std::string name = (std::filesystem::temp_directory_path() / "sluice-fabric-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~Processes() override {
    for (pid_t pid : peers_) end(pid);
    std::filesystem::remove_all(folder_);
  }

  void spawn(int rank, int ranks) {
    std::string arguments[] = {FABRIC_PEER, folder_.string(), GetParam(), std::to_string(rank),
                               std::to_string(ranks)};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t pid = 0;
    ASSERT_EQ(posix_spawn(&pid, FABRIC_PEER, nullptr, nullptr, argv.data(), environ), 0);
    peers_.push_back(pid);
  }
  static void end(pid_t& pid) {
    if (pid == 0) return;
    kill(pid, SIGKILL);
    waitpid(std::exchange(pid, 0), nullptr, 0);
  }

  std::filesystem::path folder_;
  std::vector<pid_t> peers_;
};

TEST_P(Processes, AKilledRankIsNoticedWithinTheDeadlineAndClosingDoesNotHang) {
  spawn(1, 3);
  spawn(2, 3);
  FileBootstrap bootstrap(folder_, 0, 3);
  auto fabric = Fabric::open(loop_options(GetParam(), 0, 3), bootstrap);
  ASSERT_TRUE(fabric.ok()) << fabric.status().message();
  uint64_t seq = 0;
  for (; seq < 50; ++seq) ASSERT_EQ(exchange_bytes(**fabric, seq, soon()), Wait::ready) << seq;

  end(peers_[1]);
  Wait result = Wait::ready;
  const Deadline deadline = Deadline::after(seconds(2));
  while (result == Wait::ready) result = exchange_bytes(**fabric, seq++, deadline);
  if (GetParam() == "local") {
    EXPECT_EQ(result, Wait::late);
  } else {
    EXPECT_TRUE(result == Wait::late || result == Wait::peer_failed);
  }
  if (result == Wait::peer_failed) {
    EXPECT_EQ((*fabric)->failed_peer(), 2);
  }
  --seq;
  EXPECT_FALSE((*fabric)->arrived(2, Kind::dispatch, seq) && (*fabric)->arrived(2, Kind::combine, seq));
  fabric->reset();
}

INSTANTIATE_TEST_SUITE_P(Providers, Processes, testing::Values("local", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice::fabric
