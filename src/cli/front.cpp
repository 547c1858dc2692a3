// `sluice front` (started by `sluice serve`): the HTTP server as a process.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <memory>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/front_flags.h"
#include "cluster/grpc_engine_client.h"
#include "cluster/run_directory.h"
#include "cluster/stop_signals.h"

namespace sluice::cli {
namespace {

struct FrontFlags {
  server::FrontOptions options;
  std::string run_directory;
  int orphan_timeout = 30;
};

int run(const FrontFlags& flags) {
  const UniqueFd stop = cluster::stop_signals_of_child();
  log::set_role("front");
  ::prctl(PR_SET_NAME, "sluice-front");
  std::atomic<bool> orphaned = false;
  const auto client =
      cluster::GrpcEngineClient::start({.coordinator = cluster::coordinator_address(flags.run_directory),
                                        .orphan_timeout = seconds(flags.orphan_timeout),
                                        .on_orphaned = [&] {
                                          orphaned = true;
                                          ::kill(::getpid(), SIGTERM);  // stop as if told to
                                        }});
  const int status = server::run_front(flags.options, *client, stop.get());
  if (orphaned) cluster::abandon_run_directory(flags.run_directory, {});
  return status;
}

}  // namespace

void add_front(CLI::App& program, int& status) {
  CLI::App* command =
      program.add_subcommand("front", "The HTTP server of a cluster; started by serve")->group("");
  auto flags = std::make_shared<FrontFlags>();
  command->add_option("model", flags->options.model_directory)->required();
  add_front_flags(*command, flags->options);
  command->add_option("--max-model-len", flags->options.max_model_len);
  command->add_option("--run-directory", flags->run_directory)->required();
  command->add_option("--orphan-timeout", flags->orphan_timeout);
  command->callback([flags, &status] { status = run(*flags); });
}

}  // namespace sluice::cli
