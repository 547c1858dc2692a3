#include "cli/numbers.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>

namespace sluice::cli {

CLI::Validator whole_number(int64_t least, int64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (whole && value >= least && value <= most) return {};
    return fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
  };
  return {check, fmt::format("{} to {}", least, most)};
}

}  // namespace sluice::cli
