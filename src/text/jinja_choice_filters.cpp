// Filters that apply other filters, tests or attributes: map, select and their kin, default, attr.
#include <unordered_map>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"

namespace sluice::text::jinja {
namespace {

Value generator(std::vector<Value> items) {
  List list;
  list.kind = ListKind::generator;
  list.items = std::move(items);
  return Value::of(std::move(list));
}

// Nothing at all comes of an empty or false value, whatever its type: so does Jinja.
std::vector<Value> elements(Interpreter& interpreter, const Value& value) {
  return value.truthy() ? iterate(interpreter, value) : std::vector<Value>();
}

// The arguments behind the first `skipped` positional ones.
Arguments rest_of(const Arguments& arguments, size_t skipped) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(skipped),
                         arguments.positional.end());
  rest.keyword = arguments.keyword;
  return rest;
}

const std::string& name_argument(const Arguments& arguments, size_t i, const char* what) {
  if (!arguments.positional[i].is_string())
    throw Error(std::string("the name of a ") + what + " must be a str");
  return arguments.positional[i].as_string();
}

Value map(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  std::vector<Value> results;
  if (arguments.positional.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"}, 1);
    const bool with_default = bound.has(1) && !bound[1].is_none();
    for (const Value& item : elements(interpreter, value)) {
      results.push_back(attribute_path(interpreter, item, bound[0], with_default ? &bound[1] : nullptr));
    }
    return generator(std::move(results));
  }
  const std::string& filter = name_argument(arguments, 0, "filter");
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : elements(interpreter, value)) {
    results.push_back(interpreter.filter(filter, item, rest));
  }
  return generator(std::move(results));
}

template <bool wanted, bool by_attribute>
Value choose(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  constexpr size_t kTestAt = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) throw Error("Missing parameter for attribute name");
  const bool tested = arguments.positional.size() > kTestAt;
  const Arguments rest = tested ? rest_of(arguments, kTestAt + 1) : Arguments();
  std::vector<Value> kept;
  for (const Value& item : elements(interpreter, value)) {
    const Value subject =
        by_attribute ? attribute_path(interpreter, item, arguments.positional[0], nullptr) : item;
    const bool passes = tested ? interpreter.test(name_argument(arguments, kTestAt, "test"), subject, rest)
                               : subject.truthy();
    if (passes == wanted) kept.push_back(item);
  }
  return generator(std::move(kept));
}

Value default_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool missing = value.is_undefined() || (bound.boolean(1, false) && !value.truthy());
  return missing ? bound.value(0, Value::string("")) : value;
}

// The attribute alone, never an item.
Value attribute_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  const std::string name = bound.text(0, "");
  if (value.is(Value::Kind::dict) && find_method(value, name) == nullptr) {
    return Value::undefined("'dict object' has no attribute '" + name + "'");
  }
  return interpreter.attribute(value, name);
}

}  // namespace

Filter find_choice_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> table = {
      {"attr", attribute_filter},       {"d", default_filter},
      {"default", default_filter},      {"map", map},
      {"reject", choose<false, false>}, {"rejectattr", choose<false, true>},
      {"select", choose<true, false>},  {"selectattr", choose<true, true>},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace sluice::text::jinja
