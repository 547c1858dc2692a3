#include "cli/environment.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "cli/suggest.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kPrefix = "SLUICE_";

Status set_log_level(std::string_view value) {
  if (value == "debug") {
    log::set_level(log::Level::debug);
  } else if (value == "info") {
    log::set_level(log::Level::info);
  } else if (value == "warning") {
    log::set_level(log::Level::warning);
  } else if (value == "error") {
    log::set_level(log::Level::error);
  } else {
    return invalid_argument(
        fmt::format("SLUICE_LOG_LEVEL: '{}' is not one of debug, info, warning, error", value));
  }
  return {};
}

}  // namespace

Status apply_environment(char** environment) {
  // SLUICE_SHARED tells tests where reference checkpoints lie; the program has no use for it.
  const std::vector<std::string> known{"SLUICE_API_KEY", "SLUICE_LOG_LEVEL", "SLUICE_SHARED"};
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (!entry.starts_with(kPrefix)) continue;
    const size_t equals = std::min(entry.find('='), entry.size());
    const std::string name(entry.substr(0, equals));
    if (name == "SLUICE_LOG_LEVEL")
      SLUICE_RETURN_IF_ERROR(set_log_level(entry.substr(std::min(equals + 1, entry.size()))));
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return invalid_argument(
        fmt::format("unknown environment variable {}{}; unset it", name, suggestion(name, known)));
  }
  return {};
}

}  // namespace sluice::cli
