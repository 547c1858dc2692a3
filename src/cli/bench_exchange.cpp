// `sluice bench exchange`: how fast dispatch and combine are, next to what they are held to.
#include "cli/bench_exchange.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/race.h"
#include "bench/rank_main.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "fabric/fabric.h"

namespace sluice::cli {
namespace {

constexpr int kPass = 0;
constexpr int kFail = 1;
constexpr int kUsageError = 2;

struct BenchExchangeFlags {
  int ranks = 4;
  std::string fabric;
  int hidden = 7168;
  int experts = 256;
  int top_k = 8;
  std::vector<int> tokens{8, 128};
  int round_tokens = 512;
  std::string wire = "bfloat16";
  std::string load = "uniform";
  bool deterministic = false;
  int repetitions = 0;
  int blocks = 9;
  bool threads = false;
  std::vector<std::string> against;
  std::string mpi_program;
  bool json = false;
};

bool is_against(const BenchExchangeFlags& flags, std::string_view name) {
  return std::find(flags.against.begin(), flags.against.end(), name) != flags.against.end();
}

std::string own_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

// Open MPI as it runs best where there are more ranks than cores, over the same transport.
Result<std::vector<std::string>> mpi_command(const BenchExchangeFlags& flags) {
  const std::string program =
      flags.mpi_program.empty()
          ? (std::filesystem::path(own_program()).parent_path() / "sluice-mpi-exchange").string()
          : flags.mpi_program;
  if (::access(program.c_str(), X_OK) != 0) {
    return not_found(
        fmt::format("--against mpi: {} is not there; it is built where Open MPI is installed "
                    "(./dev bench-setup, then ./dev build)",
                    program));
  }
  if (flags.fabric != "tcp" && flags.fabric != "local") {
    return invalid_argument(
        fmt::format("--against mpi: Open MPI is set up here for tcp and local, not for {}", flags.fabric));
  }
  std::vector<std::string> command{"mpirun", "--oversubscribe", "-n", std::to_string(flags.ranks)};
  if (::geteuid() == 0) command.emplace_back("--allow-run-as-root");
  const auto set = [&](const std::string& name, const std::string& value) {
    command.insert(command.end(), {"--mca", name, value});
  };
  set("mpi_yield_when_idle", "1");
  set("pml", "ob1");
  set("btl", flags.fabric == "tcp" ? "tcp,self" : "vader,self");
  if (flags.fabric == "tcp") set("btl_tcp_if_include", "lo");
  command.push_back(program);
  return command;
}

Result<bench::Settings> to_settings(const BenchExchangeFlags& flags, int tokens) {
  bench::Settings settings;
  exchange::Shape& shape = settings.shape;
  shape.ranks = flags.ranks;
  shape.experts = flags.experts;
  shape.top_k = flags.top_k;
  shape.hidden = flags.hidden;
  shape.max_tokens = std::min(tokens, flags.round_tokens);
  shape.exact = flags.deterministic;
  if (flags.wire != "bfloat16" && flags.wire != "float32") {
    return invalid_argument(fmt::format("--wire: '{}' is not one of bfloat16, float32", flags.wire));
  }
  shape.wire = flags.wire == "bfloat16" ? DType::bfloat16 : DType::float32;
  const auto load = bench::parse_load(flags.load);
  if (!load)
    return invalid_argument(
        fmt::format("--load: '{}' is not one of uniform, skewed, one-expert", flags.load));
  settings.load = *load;
  settings.tokens = tokens;
  settings.fabric = flags.fabric;
  settings.raw = is_against(flags, "raw");
  SLUICE_ASSIGN_OR_RETURN(const auto placement, exchange::Placement::contiguous(shape.experts, shape.ranks));
  SLUICE_RETURN_IF_ERROR(exchange::plan(shape, placement).status());
  return settings;
}

std::string side_line(const nlohmann::json& figures, const std::string& name) {
  const auto pair = [&](const char* phase) {
    const auto& us = figures.at(phase);
    return fmt::format("{:9.1f} {:9.1f}", us.at("p50").get<double>(), us.at("p99").get<double>());
  };
  return fmt::format("  {:<9} {} {} {}  {:6.2f} {:6.2f}", name, pair("dispatch_us"), pair("combine_us"),
                     pair("both_us"), figures.at("dispatch_gb_s").get<double>(),
                     figures.at("combine_gb_s").get<double>());
}

void print_case(const nlohmann::json& result) {
  fmt::print("{} tokens a rank: slowest of {} ranks over {} ({}), {} repetitions, every byte verified\n",
             result.at("tokens").get<int>(), result.at("ranks").get<int>(),
             result.at("fabric").get<std::string>(), result.at("fabric_name").get<std::string>(),
             result.at("repetitions").get<int>());
  fmt::print("  {:<9} {:>19} {:>19} {:>19}  {:>13}\n", "us", "dispatch p50, p99", "combine p50, p99",
             "both p50, p99", "GB/s a rank");
  for (const char* name : {"exchange", "mpi", "raw", "copies"}) {
    if (result.contains(name)) fmt::print("{}\n", side_line(result.at(name), name));
  }
  const auto ratio = [&](const char* name, const char* meaning) {
    if (result.contains(name)) fmt::print("  {} {:.3f} ({})\n", name, result.at(name).get<double>(), meaning);
  };
  ratio("ratio_to_mpi", "time of the exchange / time of MPI_Alltoallv doing the same; below 1 is faster");
  ratio("ratio_to_raw", "time of plain puts of the same bytes / time of the exchange");
  ratio("ratio_to_floor", "time of plain puts and the copies that cannot be avoided / time of the exchange");
  std::fflush(stdout);
}

int fail(const Status& status, int code) {
  fmt::print(stderr, "sluice bench exchange: {}\n", status.message());
  return code;
}

int run(const BenchExchangeFlags& flags) {
  const Status available = fabric::check_provider(flags.fabric);
  if (!available.ok()) return fail(available.with_context("--fabric"), kUsageError);
  bench::RaceOptions options;
  options.blocks = flags.blocks;
  options.repetitions = flags.repetitions;
  options.threads = flags.threads;
  options.program = own_program();
  if (is_against(flags, "mpi")) {
    auto command = mpi_command(flags);
    if (!command.ok()) return fail(command.status(), kUsageError);
    options.mpi_command = std::move(*command);
  }
  nlohmann::json document{{"benchmark", "exchange"}, {"cases", nlohmann::json::array()}};
  for (const int tokens : flags.tokens) {
    const auto settings = to_settings(flags, tokens);
    if (!settings.ok()) return fail(settings.status(), kUsageError);
    const auto result = bench::race(*settings, options);
    if (!result.ok()) return fail(result.status(), kFail);
    if (!flags.json) print_case(*result);
    document["cases"].push_back(*result);
  }
  if (flags.json) fmt::print("{}\n", document.dump(2));
  return kPass;
}

void add_flags(CLI::App& command, BenchExchangeFlags& flags) {
  const auto number = [&](const char* name, int& value, int least, int most, const char* help) {
    command.add_option(name, value, help)
        ->check(whole_number(least, most))
        ->type_name("N")
        ->capture_default_str();
  };
  number("--data-parallel-size", flags.ranks, 2, 4096, "Ranks, each a process");
  command
      .add_option("--fabric", flags.fabric,
                  "What carries the exchange; required: nothing is chosen in silence")
      ->required()
      ->type_name("NAME");
  number("--hidden", flags.hidden, 1, 1 << 20, "Elements of a row");
  number("--experts", flags.experts, 1, 1 << 20, "Experts over all ranks");
  number("--top-k", flags.top_k, 1, 16, "Experts that a token chooses");
  command.add_option("--tokens", flags.tokens, "Tokens of each rank, a case each: 8,128,4096")
      ->delimiter(',')
      ->check(whole_number(1, 1 << 20))
      ->type_name("LIST")
      ->capture_default_str();
  number("--round-tokens", flags.round_tokens, 1, 1 << 20, "Tokens of one exchange; more are done in rounds");
  command.add_option("--wire", flags.wire, "Type of rows between ranks: bfloat16 or float32")
      ->type_name("TYPE")
      ->capture_default_str();
  command.add_option("--load", flags.load, "How tokens choose experts: uniform, skewed or one-expert")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_flag("--deterministic", flags.deterministic, "The exact combine: rows travel back unreduced");
  number("--repetitions", flags.repetitions, 0, 1 << 20,
         "Of each side in all; 0: a third of a second a block");
  number("--blocks", flags.blocks, 1, 1000, "Turns that the sides take");
  command.add_flag("--threads", flags.threads, "Ranks are threads of this process");
  command
      .add_option("--against", flags.against,
                  "mpi: MPI_Alltoallv doing the same; raw: plain puts of the same bytes, and the floor")
      ->delimiter(',')
      ->check(CLI::IsMember({"mpi", "raw"}))
      ->type_name("LIST");
  command.add_option("--mpi-program", flags.mpi_program, "sluice-mpi-exchange, when it is not beside sluice")
      ->type_name("FILE");
  command.add_flag("--json", flags.json, "Print one JSON document instead of lines");
}

}  // namespace

void add_bench_exchange(CLI::App& bench, int& status) {
  CLI::App* command = bench.add_subcommand("exchange", "Time dispatch and combine of the expert exchange");
  auto flags = std::make_shared<BenchExchangeFlags>();
  add_flags(*command, *flags);
  command->callback([flags, &status] { status = run(*flags); });
}

}  // namespace sluice::cli
