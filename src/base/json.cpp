#include "base/json.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/mapping.h"

namespace sluice {
namespace {

// The depth of nesting, counted outside strings. It does not judge the text: the parser does that.
int deepest_nesting(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, std::string_view name, JsonLimits limits) {
  if (text.size() > limits.bytes) {
    return invalid_argument(
        fmt::format("{}: {} bytes of JSON, the limit is {}", name, text.size(), limits.bytes));
  }
  if (const int depth = deepest_nesting(text); depth > limits.depth) {
    return invalid_argument(
        fmt::format("{}: JSON nested {} deep, the limit is {}", name, depth, limits.depth));
  }
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    // Syntax is a parse_error, a number such as 1e400 an out_of_range. Their texts begin with
    // "[json.exception...] ".
    std::string_view what = error.what();
    if (const size_t at = what.find("] "); at != std::string_view::npos) what.remove_prefix(at + 2);
    return invalid_argument(fmt::format("{}: not valid JSON: {}", name, what));
  }
}

Result<nlohmann::json> read_json_file(const std::string& path, JsonLimits limits) {
  SLUICE_ASSIGN_OR_RETURN(const Mapping file, Mapping::read_file(path));
  return parse_json({reinterpret_cast<const char*>(file.data()), file.size()}, path, limits);
}

}  // namespace sluice
