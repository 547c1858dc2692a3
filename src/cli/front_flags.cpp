#include "cli/front_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

namespace sluice::cli {
namespace {

// An empty key would let in whoever sends an empty one.
std::vector<std::string> keys_in(const std::vector<std::string>& lists) {
  std::vector<std::string> keys;
  for (const std::string& list : lists) {
    for (size_t begin = 0, end = 0; begin <= list.size(); begin = end + 1) {
      end = std::min(list.find(',', begin), list.size());
      if (end == begin) throw CLI::ValidationError("--api-key", "a key is empty");
      keys.push_back(list.substr(begin, end - begin));
    }
  }
  return keys;
}

}  // namespace

void add_front_flags(CLI::App& command, server::FrontOptions& options) {
  command.add_option("--host", options.host, "Address to listen on")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command.add_option("--port", options.port, "Port to listen on")
      ->check(CLI::Range(1, 65535))
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--served-model-name", options.served_model_name,
                  "The model's name in the API; by default the last component of MODEL")
      ->type_name("NAME");
  command
      .add_option_function<std::vector<std::string>>(
          "--api-key",
          [&options](const std::vector<std::string>& lists) { options.api_keys = keys_in(lists); },
          "Keys of which a client must show one; by default none. Other users of this machine can read a "
          "command line, not an environment")
      ->envname("SLUICE_API_KEY")
      ->type_name("KEY,...");
  command.add_option("--max-body-bytes", options.max_body_bytes, "Largest request body")
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--drain-timeout", options.drain_timeout_seconds,
                  "Seconds that requests in progress have to finish after SIGTERM or Ctrl-C")
      ->check(CLI::Range(0, 86400))
      ->type_name("N")
      ->capture_default_str();
}

std::vector<std::string> to_arguments(const server::FrontOptions& options) {
  std::vector<std::string> arguments{"--host", options.host, "--port", std::to_string(options.port)};
  if (!options.served_model_name.empty()) {
    arguments.insert(arguments.end(), {"--served-model-name", options.served_model_name});
  }
  arguments.insert(arguments.end(), {"--max-body-bytes", std::to_string(options.max_body_bytes),
                                     "--drain-timeout", std::to_string(options.drain_timeout_seconds)});
  return arguments;
}

std::vector<std::string> to_environment(const server::FrontOptions& options) {
  if (options.api_keys.empty()) return {};
  return {fmt::format("SLUICE_API_KEY={}", fmt::join(options.api_keys, ","))};
}

}  // namespace sluice::cli
