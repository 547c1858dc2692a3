// A rank process with a fake engine, for tests that kill: fake_rank RANK RUN-DIRECTORY ORPHAN-TIMEOUT-MS.
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdlib>

#include "base/log.h"
#include "cluster/rank_process.h"
#include "cluster/run_directory.h"
#include "fake_rank.h"

int main(int argc, char** argv) {
  using namespace sluice;
  if (argc != 4) return 2;
  const int rank = std::atoi(argv[1]);
  log::set_role(std::string("rank ") + argv[1]);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int stop_fd = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  return cluster::run_rank(
      {.rank = rank,
       .coordinator = cluster::coordinator_address(argv[2]),
       .address = cluster::rank_address(argv[2], rank, ::getpid()),
       .orphan_timeout = milliseconds(std::atoi(argv[3]))},
      [rank](engine::Callbacks callbacks) -> Result<std::unique_ptr<engine::Rank>> {
        return std::unique_ptr<engine::Rank>(
            std::make_unique<cluster::FakeRank>(rank, std::move(callbacks), cluster::FakeRank::Options()));
      },
      stop_fd);
}
