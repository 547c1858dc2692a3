#include "cli/flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string_view>

#include "checkpoint/config.h"
#include "cli/numbers.h"
#include "fabric/fabric.h"

namespace sluice::cli {
namespace {

std::string fabric_names() {
  std::string names;
  for (const std::string_view name : fabric::provider_names()) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

void refuse_above_one(CLI::App& command, const std::string& option, const std::string& instead) {
  const auto refuse = [option, instead](const std::string& value) {
    if (value != "1")
      throw CLI::ValidationError(option, fmt::format("'{}' is not supported: {}", value, instead));
  };
  command.add_option_function<std::string>(option, refuse)->group("");
}

// Options of the programs that Sluice replaces and whose concept it does not have.
void add_refusals(CLI::App& command) {
  refuse_above_one(command, "--tensor-parallel-size",
                   "Sluice keeps tensors whole and spreads experts over ranks; use --data-parallel-size");
  refuse_above_one(command, "--pipeline-parallel-size",
                   "Sluice does not split layers over ranks; use --data-parallel-size");
  const auto backend = [](const std::string& value) {
    throw CLI::ValidationError(
        "--all2all-backend",
        fmt::format("'{}' is not supported: Sluice has one exchange of its own; choose what "
                    "carries it with --fabric ({})",
                    value, fabric_names()));
  };
  command.add_option_function<std::string>("--all2all-backend", backend)->group("");
  command.add_flag_callback(
      "--enable-expert-parallel", [] {}, "Accepted as in vLLM: experts are always spread over the ranks");
}

Status wrong_value(std::string_view option, std::string_view value, std::string_view right) {
  return invalid_argument(fmt::format("{}: '{}' is not {}", option, value, right));
}

Status check_range(std::string_view option, int value, int least, int most) {
  if (value >= least && value <= most) return {};
  return wrong_value(option, std::to_string(value), fmt::format("a whole number from {} to {}", least, most));
}

struct IntegerFlag {
  const char* option;
  int EngineFlags::*value;
  int least;
  int most;
  const char* help;
};

constexpr int kMost = 1 << 30;
constexpr IntegerFlag kIntegers[] = {
    {"--data-parallel-size", &EngineFlags::data_parallel_size, 1, 4096,
     "Ranks over which the experts are spread"},
    {"--max-model-len", &EngineFlags::max_model_len, 0, kMost,
     "Tokens of prompt and output; 0: the model's limit"},
    {"--max-num-seqs", &EngineFlags::max_num_seqs, 1, 65'536, "Requests that one rank runs at a time"},
    {"--max-num-batched-tokens", &EngineFlags::max_num_batched_tokens, 1, 1 << 20,
     "Tokens of one step of one rank"},
    {"--block-size", &EngineFlags::block_size, 1, 1024, "Tokens in a block of the KV cache"},
    {"--kv-blocks", &EngineFlags::kv_blocks, 0, kMost, "Blocks of the KV cache; 0: as many as can be of use"},
    {"--threads", &EngineFlags::threads, 0, 1024,
     "Threads of one rank; 0: the host's cores shared among its ranks"},
    {"--step-deadline-ms", &EngineFlags::step_deadline_ms, 1, 3'600'000,
     "Milliseconds after which a rank that keeps a step waiting counts as late"},
};

Result<DType> parse_dtype(const EngineFlags& flags) {
  if (flags.dtype == "float32") return DType::float32;
  if (flags.dtype == "bfloat16") return DType::bfloat16;
  if (flags.dtype != "auto") return wrong_value("--dtype", flags.dtype, "one of auto, bfloat16, float32");
  SLUICE_ASSIGN_OR_RETURN(const auto config, checkpoint::read_model_config(flags.model));
  return config.dtype == DType::float32 ? DType::float32 : DType::bfloat16;
}

Result<std::string> parse_fabric(const EngineFlags& flags) {
  if (flags.fabric.empty()) return std::string("local");
  const auto known = fabric::provider_names();
  if (std::find(known.begin(), known.end(), flags.fabric) != known.end()) {
    const Status available = fabric::check_provider(flags.fabric);
    if (!available.ok()) return available.with_context("--fabric");
    return flags.fabric;
  }
  return wrong_value("--fabric", flags.fabric, fmt::format("one of {}", fabric_names()));
}

}  // namespace

void add_engine_flags(CLI::App& command, EngineFlags& flags) {
  command.add_option("model", flags.model, "The checkpoint's directory")->required()->type_name("MODEL");
  for (const IntegerFlag& flag : kIntegers) {
    command.add_option(flag.option, flags.*flag.value, flag.help)
        ->check(whole_number(flag.least, flag.most))
        ->type_name("N")
        ->capture_default_str();
  }
  command.add_option("--fabric", flags.fabric, "What carries the exchange between ranks: " + fabric_names())
      ->type_name("NAME");
  command.add_option("--dtype", flags.dtype, "Activations, wire and KV: auto, bfloat16 or float32")
      ->type_name("TYPE")
      ->capture_default_str();
  command.add_option("--device", flags.device, "What computes: cpu")
      ->type_name("NAME")
      ->capture_default_str();
  command.add_flag("--deterministic", flags.deterministic,
                   "The same bits for a request whatever shares its batch and however experts are placed");
  add_refusals(command);
}

std::vector<std::string> to_arguments(const EngineFlags& flags) {
  std::vector<std::string> arguments{flags.model};
  for (const IntegerFlag& flag : kIntegers) {
    arguments.insert(arguments.end(), {flag.option, std::to_string(flags.*flag.value)});
  }
  if (!flags.fabric.empty()) arguments.insert(arguments.end(), {"--fabric", flags.fabric});
  arguments.insert(arguments.end(), {"--dtype", flags.dtype, "--device", flags.device});
  if (flags.deterministic) arguments.emplace_back("--deterministic");
  return arguments;
}

Result<engine::RankSettings> to_rank_settings(const EngineFlags& flags, int rank) {
  for (const IntegerFlag& flag : kIntegers) {
    SLUICE_RETURN_IF_ERROR(check_range(flag.option, flags.*flag.value, flag.least, flag.most));
  }
  std::error_code error;
  if (!std::filesystem::is_directory(flags.model, error)) {
    return wrong_value("MODEL", flags.model, "a directory; it must be a checkpoint's");
  }
  if (flags.max_model_len == 1)
    return wrong_value("--max-model-len", "1", "0 or at least 2: a prompt and its output");
  if (flags.device != "cpu")
    return wrong_value("--device", flags.device, "cpu, the only device of this build");
  if (rank < 0 || rank >= flags.data_parallel_size) {
    return invalid_argument(fmt::format("rank {} is not from 0 to {} (--data-parallel-size {})", rank,
                                        flags.data_parallel_size - 1, flags.data_parallel_size));
  }
  engine::RankSettings settings;
  SLUICE_ASSIGN_OR_RETURN(settings.fabric, parse_fabric(flags));
  SLUICE_ASSIGN_OR_RETURN(settings.dtype, parse_dtype(flags));
  settings.model_directory = flags.model;
  settings.rank = rank;
  settings.ranks = flags.data_parallel_size;
  settings.ranks_on_host = flags.data_parallel_size;
  settings.deterministic = flags.deterministic;
  settings.threads = flags.threads;
  settings.kv_blocks = flags.kv_blocks;
  settings.engine.max_num_seqs = flags.max_num_seqs;
  settings.engine.max_num_batched_tokens = flags.max_num_batched_tokens;
  settings.engine.max_model_len = flags.max_model_len;
  settings.engine.block_size = flags.block_size;
  settings.engine.step_deadline = milliseconds(flags.step_deadline_ms);
  return settings;
}

}  // namespace sluice::cli
