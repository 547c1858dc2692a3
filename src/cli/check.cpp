// `sluice check`: does this machine compute what the reference says?
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/check_run.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"

namespace sluice::cli {
namespace {

constexpr int kPass = 0;
constexpr int kFail = 1;
constexpr int kUsageError = 2;
constexpr int kSignalBase = 128;  // a shell's convention for "ended by a signal"

struct CheckFlags {
  EngineFlags engine;
  std::string reference;
  bool json = false;
};

double tolerance_of(DType dtype) { return dtype == DType::float32 ? 1e-4 : 2e-2; }

std::string traffic_line(int rank, const fabric::Report& report) {
  uint64_t puts = 0;
  uint64_t bytes = 0;
  for (const fabric::PeerTraffic& peer : report.peers) {
    puts += peer.puts_sent;
    bytes += peer.bytes_sent;
  }
  return fmt::format("rank {}: {} puts, {} bytes sent over {} ({})", rank, puts, bytes, report.provider,
                     report.fabric_name);
}

std::string case_line(size_t number, const ReferenceCase& reference, const CheckRun& run,
                      const Verdict& verdict) {
  const Observed& observed = run.observed()[number - 1];
  std::string line = fmt::format("case {}: {} prompt tokens on rank {}, logits off by {:.2e}", number,
                                 reference.prompt.size(), run.rank_of(number - 1), verdict.logits_error);
  if (verdict.prompt_logprobs_error) {
    line += fmt::format(", prompt log-probabilities off by {:.2e}", *verdict.prompt_logprobs_error);
  }
  line += fmt::format(", greedy {} of {}", verdict.agreed, reference.greedy.size());
  if (verdict.excused_margin)
    line += fmt::format(" (then a relative margin of {:.2e} decides)", *verdict.excused_margin);
  line += fmt::format(", logits hash {:016x}", observed.logits_hash);
  if (!verdict.failure.empty()) line += ": " + verdict.failure;
  return line;
}

nlohmann::json case_json(size_t number, const ReferenceCase& reference, const CheckRun& run,
                         const Verdict& verdict) {
  nlohmann::json json{{"case", number},
                      {"rank", run.rank_of(number - 1)},
                      {"prompt_tokens", reference.prompt.size()},
                      {"logits_error", verdict.logits_error},
                      {"greedy_agreed", verdict.agreed},
                      {"greedy_total", reference.greedy.size()},
                      {"logits_hash", fmt::format("{:016x}", run.observed()[number - 1].logits_hash)},
                      {"pass", verdict.failure.empty()},
                      {"why", verdict.failure}};
  if (verdict.prompt_logprobs_error) json["prompt_logprobs_error"] = *verdict.prompt_logprobs_error;
  if (verdict.excused_margin) json["excused_margin"] = *verdict.excused_margin;
  return json;
}

// Prints as people or as programs like it, and knows the verdict over all cases.
class Printer {
 public:
  Printer(const CheckFlags& flags, const engine::RankSettings& settings) : as_json_(flags.json) {
    const double tolerance = tolerance_of(settings.dtype);
    document_ = {{"model", settings.model_directory},
                 {"dtype", dtype_name(settings.dtype)},
                 {"ranks", settings.ranks},
                 {"fabric", settings.fabric},
                 {"deterministic", settings.deterministic},
                 {"tolerance", tolerance},
                 {"cases", nlohmann::json::array()},
                 {"traffic", nlohmann::json::array()}};
    const std::string ranks =
        settings.ranks == 1 ? "1 rank" : fmt::format("{} ranks over {}", settings.ranks, settings.fabric);
    line(fmt::format("{}: {}, {}{}, tolerance {}", settings.model_directory, dtype_name(settings.dtype),
                     ranks, settings.deterministic ? ", deterministic" : "", tolerance));
  }

  void cases(const std::vector<ReferenceCase>& references, const CheckRun& run, double tolerance) {
    line("rank 0: " + run.description());
    document_["description"] = run.description();
    size_t failed = 0;
    std::string first;
    for (size_t i = 0; i < references.size(); ++i) {
      const Verdict verdict = judge(references[i], run.observed()[i], tolerance);
      line(case_line(i + 1, references[i], run, verdict));
      document_["cases"].push_back(case_json(i + 1, references[i], run, verdict));
      if (verdict.failure.empty()) continue;
      if (failed++ == 0) first = fmt::format("case {}: {}", i + 1, verdict.failure);
    }
    for (size_t rank = 0; rank < run.reports().size() && run.reports().size() > 1; ++rank) {
      const std::string text = traffic_line(static_cast<int>(rank), run.reports()[rank]);
      line(text);
      document_["traffic"].push_back(text);
    }
    if (failed > 0) fail(fmt::format("{} of {} cases; {}", failed, references.size(), first));
  }

  void fail(const std::string& why) { why_ = why; }

  // The last line, and the exit status.
  int finish() {
    document_["pass"] = why_.empty();
    document_["why"] = why_;
    // The model's name may be any bytes; the output is UTF-8.
    if (as_json_) fmt::print("{}\n", document_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    line(why_.empty() ? "CHECK PASS" : "CHECK FAIL: " + why_);
    return why_.empty() ? kPass : kFail;
  }

 private:
  void line(const std::string& text) const {
    if (as_json_) return;
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }

  const bool as_json_;
  std::string why_;
  nlohmann::json document_;
};

int usage_error(const Status& status) {
  fmt::print(stderr, "sluice check: {}\n", status.message());
  return kUsageError;
}

int run_check(const CheckFlags& flags) {
  Interrupt interrupt;
  const auto settings = to_rank_settings(flags.engine, 0);
  if (!settings.ok()) return usage_error(settings.status());
  const auto references = read_reference(flags.reference);
  if (!references.ok()) return usage_error(references.status());

  Printer printer(flags, *settings);
  CheckRun run(*references);
  Status status;
  std::thread worker([&] {
    status = run.run(*settings);
    interrupt.done();
  });
  const int signal = interrupt.wait();
  if (signal != 0) {
    fmt::print(stderr, "sluice check: interrupted\n");
    // While weights are read there is nothing to take down and no way to stop reading.
    if (run.interrupt()) std::_Exit(kSignalBase + signal);
  }
  worker.join();
  if (signal != 0) return kSignalBase + signal;
  if (status.ok()) {
    printer.cases(*references, run, tolerance_of(settings->dtype));
  } else {
    printer.fail(status.message());
  }
  return printer.finish();
}

}  // namespace

void add_check(CLI::App& program, int& status) {
  CLI::App* command =
      program.add_subcommand("check", "Compare a model's results on this machine with a reference");
  auto flags = std::make_shared<CheckFlags>();
  add_engine_flags(*command, flags->engine);
  command->add_option("--reference", flags->reference, "reference.json: prompts and the results to expect")
      ->required()
      ->type_name("FILE");
  command->add_flag("--json", flags->json, "Print one JSON document instead of lines");
  command->callback([flags, &status] { status = run_check(*flags); });
}

}  // namespace sluice::cli
