#include <fmt/core.h>

#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/python_text.h"

namespace sluice::text::jinja {

Bound::Bound(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, size_t required)
    : function_(function), names_(names.begin(), names.end()), values_(names.size()) {
  if (arguments.positional.size() > names_.size()) {
    throw Error(fmt::format("{}() takes at most {} argument(s), {} given", function, names_.size(),
                            arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.keyword) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      throw Error(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    }
    auto& place = values_[static_cast<size_t>(found - names_.begin())];
    if (place) throw Error(fmt::format("{}() got multiple values for argument '{}'", function, name));
    place = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) throw Error(fmt::format("{}() misses the argument '{}'", function, names_[i]));
  }
}

void Bound::fail_type(size_t i, const char* expected) const {
  throw Error(fmt::format("{}(): argument '{}' must be {}, not {}", function_, names_[i], expected,
                          values_[i]->type_name()));
}

std::string Bound::text(size_t i, std::string absent) const {
  if (!has(i) || values_[i]->is_none()) return absent;
  if (!values_[i]->is_string()) fail_type(i, "str");
  return values_[i]->as_string();
}

int64_t Bound::integer(size_t i, int64_t absent) const {
  if (!has(i) || values_[i]->is_none()) return absent;
  if (!values_[i]->is_integral()) fail_type(i, "int");
  return values_[i]->as_integer();
}

Value attribute_path(Interpreter& interpreter, Value object, const Value& path, const Value* otherwise) {
  if (path.is_none()) return object;
  std::vector<Value> keys;
  if (path.is_string()) {
    for (std::string& part : python::split(path.as_string(), ".", -1, false)) {
      const bool digits =
          !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
      keys.push_back(digits ? Value::integer(std::stoi(part)) : Value::string(std::move(part)));
    }
  } else {
    keys.push_back(path);
  }
  for (const Value& key : keys) {
    object = interpreter.item(object, key);
    if (otherwise != nullptr && object.is_undefined()) object = *otherwise;
  }
  return object;
}

Filter find_filter(std::string_view name) {
  if (const Filter filter = find_text_filter(name)) return filter;
  if (const Filter filter = find_sequence_filter(name)) return filter;
  return find_choice_filter(name);
}

}  // namespace sluice::text::jinja
