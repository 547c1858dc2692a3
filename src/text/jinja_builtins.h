// The tables of filters, tests, methods and global functions, and what binds arguments to their parameters.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace sluice::text::jinja {

using Filter = Value (*)(Interpreter&, const Value& value, const Arguments&);
using Test = bool (*)(Interpreter&, const Value& value, const Arguments&);
using Method = Value (*)(Interpreter&, const Value& self, const Arguments&);

// Each is null (or nothing) for an unknown name.
Filter find_filter(std::string_view name);
Filter find_text_filter(std::string_view name);      // jinja_text_filters.cpp
Filter find_sequence_filter(std::string_view name);  // jinja_sequence_filters.cpp
Filter find_choice_filter(std::string_view name);    // jinja_choice_filters.cpp
Test find_test(std::string_view name);
Method find_method(const Value& self, std::string_view name);
std::optional<Value> find_global(std::string_view name);

// Arguments matched with parameter names, as Python does.
class Bound {
 public:
  // Too many, unknown or missing (of the first `required`) arguments are an Error that names `function`.
  Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
        size_t required = 0);

  bool has(size_t i) const { return values_[i].has_value(); }
  // Only where has(i).
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value value(size_t i, Value absent) const { return has(i) ? *values_[i] : absent; }
  // A wrong type is an Error. None counts as absent.
  std::string text(size_t i, std::string absent) const;
  int64_t integer(size_t i, int64_t absent) const;
  bool boolean(size_t i, bool absent) const { return has(i) ? values_[i]->truthy() : absent; }

 private:
  [[noreturn]] void fail_type(size_t i, const char* expected) const;

  std::string function_;
  std::vector<std::string> names_;
  std::vector<std::optional<Value>> values_;
};

// The value of an attribute path such as "function.name" or "0"; `otherwise` where it is undefined.
Value attribute_path(Interpreter& interpreter, Value object, const Value& path, const Value* otherwise);

}  // namespace sluice::text::jinja
