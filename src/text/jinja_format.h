// Values as text: Python's str() and repr(), and json.dumps as transformers' tojson filter calls it.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace sluice::text::jinja {

// Throws when a text of so many bytes is over the limit. A small value can be endless when written: it may
// refer to one list many times over.
void check_text_size(size_t bytes);

std::string repr_number(double number);
std::string repr_string(std::string_view text);
std::string to_text(const Value& value);
std::string to_repr(const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;  // one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace sluice::text::jinja
