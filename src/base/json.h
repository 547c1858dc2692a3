// JSON from outside: parsed with limits on size and depth, so that no input can exhaust the stack or the
// memory.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice {

struct JsonLimits {
  size_t bytes = 512u << 20;
  int depth = 64;
};

// `name` says in errors where the text came from ("config.json", "request body"). Duplicate keys keep the
// last.
Result<nlohmann::json> parse_json(std::string_view text, std::string_view name, JsonLimits limits = {});
// The same for a file.
Result<nlohmann::json> read_json_file(const std::string& path, JsonLimits limits = {});

}  // namespace sluice
