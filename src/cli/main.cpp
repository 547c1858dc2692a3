// The program `sluice`: reads the command line, runs one command, and says what was wrong with it otherwise.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/suggest.h"
#include "fabric/fabric.h"

namespace {

constexpr int kUsageError = 2;

void add_commands(CLI::App& program, int& status) {
#ifdef SLUICE_HAVE_SERVE
  sluice::cli::add_serve(program, status);
#endif
#ifdef SLUICE_HAVE_FRONT
  sluice::cli::add_front(program, status);
#endif
#ifdef SLUICE_HAVE_RANK
  sluice::cli::add_rank(program, status);
#endif
  sluice::cli::add_check(program, status);
  sluice::cli::add_bench(program, status);
#ifdef SLUICE_HAVE_TOKENIZE
  sluice::cli::add_tokenize(program, status);
#endif
}

int usage_error(const std::string& command, const std::string& message) {
  fmt::print(stderr, "{}: {}\nRun '{} --help' for what it takes.\n", command, message, command);
  return kUsageError;
}

// The innermost command that was named on the command line.
const CLI::App& chosen(const CLI::App& program) {
  const auto commands = program.get_subcommands();
  return commands.empty() ? program : chosen(*commands.front());
}

std::vector<std::string> names_in(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string unknown_argument(const CLI::App& program, const CLI::App& command) {
  const std::vector<std::string> extras = program.remaining(true);
  std::string extra = extras.empty() ? "?" : extras.front();
  if (extra.starts_with("--")) extra = extra.substr(0, extra.find('='));
  const bool option = extra.starts_with("-");
  const bool top = &command == &program;
  return fmt::format("unknown {} {}{}", option ? "option" : (top ? "command" : "argument"), extra,
                     sluice::cli::suggestion(extra, names_in(command)));
}

}  // namespace

int main(int argc, char** argv) {
  sluice::fabric::prepare_process();
  if (const auto known = sluice::cli::apply_environment(environ); !known.ok()) {
    fmt::print(stderr, "sluice: {}\n", known.message());
    return kUsageError;
  }
  int status = 0;
  CLI::App program("Serves Mixture-of-Experts language models, their experts spread over ranks.", "sluice");
  program.set_version_flag("--version", "sluice " SLUICE_VERSION);
  add_commands(program, status);
  if (argc < 2) return usage_error("sluice", "no command given");
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return program.exit(asked);
  } catch (const CLI::ParseError& error) {
    const CLI::App& command = chosen(program);
    const std::string name = &command == &program ? "sluice" : "sluice " + command.get_name();
    const bool unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    return usage_error(name, unknown ? unknown_argument(program, command) : error.what());
  }
  return status;
}
