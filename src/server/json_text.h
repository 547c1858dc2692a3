// JSON in and out of HTTP bodies: request bodies parsed with their key order kept and with limits that no
// body can make expensive, and strings written as JSON text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice::server {

// The text as a JSON string, quotes included; invalid UTF-8 as U+FFFD.
std::string json_string(std::string_view text);

struct BodyLimits {
  int depth = 64;
  int keys = 512;  // of one object: their order is kept in a list, which is searched for each
};

// Errors (invalid_argument) say where in the body and why: bad syntax, invalid UTF-8, a lone surrogate, a
// number too large for a double, nesting or an object beyond the limits. A repeated key keeps its last value.
Result<nlohmann::ordered_json> parse_body(std::string_view body, BodyLimits limits = {});

}  // namespace sluice::server
