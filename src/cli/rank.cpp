// `sluice rank` (started by `sluice serve`): one rank as a process.
#include <fmt/core.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cluster/exit_status.h"
#include "cluster/rank_process.h"
#include "cluster/run_directory.h"
#include "cluster/stop_signals.h"

namespace sluice::cli {
namespace {

struct RankFlags {
  EngineFlags engine;
  int rank = 0;
  std::string run_directory;
  int orphan_timeout = 30;
};

int run(const RankFlags& flags) {
  const UniqueFd stop = cluster::stop_signals_of_child();
  log::set_role(fmt::format("rank {}", flags.rank));
  ::prctl(PR_SET_NAME, fmt::format("sluice-rank-{}", flags.rank).c_str());
  const auto settings = to_rank_settings(flags.engine, flags.rank);
  if (!settings.ok()) {
    log::error("{}", settings.status().message());
    return cluster::kExitConfiguration;
  }
  const cluster::RankProcessOptions options{
      .rank = flags.rank,
      .coordinator = cluster::coordinator_address(flags.run_directory),
      .address = cluster::rank_address(flags.run_directory, flags.rank, ::getpid()),
      .orphan_timeout = seconds(flags.orphan_timeout)};
  const int status = cluster::run_rank(
      options,
      [&](engine::Callbacks callbacks) { return engine::Rank::load(*settings, std::move(callbacks)); },
      stop.get());
  if (status == cluster::kExitOrphaned) cluster::abandon_run_directory(flags.run_directory, options.address);
  return status;
}

}  // namespace

void add_rank(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand("rank", "One rank of a cluster; started by serve")->group("");
  auto flags = std::make_shared<RankFlags>();
  add_engine_flags(*command, flags->engine);
  command->add_option("--rank", flags->rank)->required();
  command->add_option("--run-directory", flags->run_directory)->required();
  command->add_option("--orphan-timeout", flags->orphan_timeout);
  command->callback([flags, &status] { status = run(*flags); });
}

}  // namespace sluice::cli
