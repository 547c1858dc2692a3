// Python's string formatting.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace sluice::text::jinja {

// text % arguments, where a tuple or dict gives several.
std::string format_percent(Interpreter& interpreter, std::string_view text, const Value& arguments);
// text.format(...): replacement fields without format specifications.
std::string format_fields(Interpreter& interpreter, std::string_view text, const Arguments& arguments);

// text.replace(old, with, most), its size checked before it is made. All if `most` is negative.
std::string replaced(Interpreter& interpreter, std::string_view text, std::string_view old,
                     std::string_view with, int64_t most);

// int(text, base) and float(text); nothing where Python raises ValueError.
std::optional<int64_t> parse_integer(std::string_view text, int base);
std::optional<double> parse_number(std::string_view text);

}  // namespace sluice::text::jinja
