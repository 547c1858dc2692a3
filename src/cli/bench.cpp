// `sluice bench ...` and the processes that it starts.
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>
#include <string>

#include "bench/rank_main.h"
#include "cli/bench_exchange.h"
#include "cli/commands.h"

namespace sluice::cli {
namespace {

struct BenchRankFlags {
  std::string control;
  int rank = 0;
};

void add_bench_rank(CLI::App& program, int& status) {
  CLI::App* command =
      program.add_subcommand("bench-rank", "One rank of a benchmark; started by bench")->group("");
  auto flags = std::make_shared<BenchRankFlags>();
  command->add_option("--control", flags->control)->required();
  command->add_option("--rank", flags->rank)->required();
  command->callback([flags, &status] {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a benchmark that was killed leaves nothing behind
    status = bench::run_exchange_rank(flags->control, flags->rank);
  });
}

}  // namespace

void add_bench(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand("bench", "Measure how fast a part of Sluice is");
  command->require_subcommand(1);
  add_bench_exchange(*command, status);
  add_bench_rank(program, status);
}

}  // namespace sluice::cli
