// Methods of strings, lists and dicts that templates may call.
#include <algorithm>
#include <unordered_map>

#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_strings.h"
#include "text/python_text.h"
#include "text/unicode.h"

namespace sluice::text::jinja {
namespace {

using python::Side;

std::vector<Value> strings(std::vector<std::string> parts) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (std::string& part : parts) values.push_back(Value::string(std::move(part)));
  return values;
}

template <Side side>
Value strip(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  interpreter.spend_bytes(self.as_string().size());
  const std::string characters = bound.text(0, "");
  const bool given = bound.has(0) && !bound[0].is_none();
  return Value::string(std::string(python::strip(
      self.as_string(), side, given ? std::optional<std::string_view>(characters) : std::nullopt)));
}

template <bool from_right>
Value split(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  interpreter.spend_bytes(self.as_string().size());
  const std::string separator = bound.text(0, "");
  const bool given = bound.has(0) && !bound[0].is_none();
  if (given && separator.empty()) throw Error("empty separator");
  auto parts =
      python::split(self.as_string(), given ? std::optional<std::string_view>(separator) : std::nullopt,
                    bound.integer(1, -1), from_right);
  interpreter.spend(parts.size());
  return Value::list(strings(std::move(parts)));
}

template <std::string (*map)(std::string_view)>
Value mapped(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  interpreter.spend_bytes(self.as_string().size());
  return Value::string(map(self.as_string()));
}

// self[start:end], as startswith, find and count take it.
std::string_view window(const std::string& text, const Bound& bound, size_t first, size_t* offset = nullptr) {
  if (!bound.has(first) && !bound.has(first + 1)) return text;
  const auto length = static_cast<int64_t>(count_code_points(text));
  const auto place = [&](size_t i, int64_t absent) {
    const int64_t at = bound.integer(i, absent);
    return static_cast<size_t>(std::clamp<int64_t>(at < 0 ? at + length : at, 0, length));
  };
  const size_t begin = python::byte_of(text, place(first, 0));
  const size_t end = python::byte_of(text, place(first + 1, length));
  if (offset != nullptr) *offset = begin;
  return end <= begin ? std::string_view() : std::string_view(text).substr(begin, end - begin);
}

template <bool start>
Value begins_or_ends(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound(start ? "startswith" : "endswith", arguments, {"prefix", "start", "end"}, 1);
  interpreter.spend_bytes(0);
  const std::string_view text = window(self.as_string(), bound, 1);
  const auto matches = [&](const Value& part) {
    if (!part.is_string()) {
      throw Error(std::string(start ? "startswith" : "endswith") +
                  " first arg must be str or a tuple of str, not " + part.type_name());
    }
    return start ? text.starts_with(part.as_string()) : text.ends_with(part.as_string());
  };
  if (bound[0].is(Value::Kind::list) && bound[0].as_list().kind == ListKind::tuple) {
    const auto& parts = bound[0].as_list().items;
    return Value::boolean(std::any_of(parts.begin(), parts.end(), matches));
  }
  return Value::boolean(matches(bound[0]));
}

template <bool from_right, bool must>
Value find(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("find", arguments, {"sub", "start", "end"}, 1);
  interpreter.spend_bytes(self.as_string().size());
  size_t offset = 0;
  const std::string_view text = window(self.as_string(), bound, 1, &offset);
  const std::string part = bound.text(0, "");
  const size_t found = from_right ? text.rfind(part) : text.find(part);
  if (found == std::string_view::npos) {
    if (must) throw Error("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(
      static_cast<int64_t>(count_code_points(std::string_view(self.as_string()).substr(0, offset + found))));
}

Value count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  interpreter.spend_bytes(self.as_string().size());
  const std::string_view text = window(self.as_string(), bound, 1);
  const std::string part = bound.text(0, "");
  if (part.empty()) return Value::integer(static_cast<int64_t>(count_code_points(text)) + 1);
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) {
    ++found;
  }
  return Value::integer(found);
}

Value replace(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return Value::string(
      replaced(interpreter, self.as_string(), bound.text(0, ""), bound.text(1, ""), bound.integer(2, -1)));
}

Value join(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& item : iterate(interpreter, bound[0])) {
    if (!item.is_string()) {
      throw Error("sequence item: expected str instance, " + item.type_name() + " found");
    }
    interpreter.spend_bytes(item.as_string().size() + self.as_string().size());
    if (!std::exchange(first, false)) out += self.as_string();
    out += item.as_string();
  }
  return Value::string(std::move(out));
}

Value split_lines(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  interpreter.spend_bytes(self.as_string().size());
  auto lines = python::split_lines(self.as_string(), bound.boolean(0, false));
  interpreter.spend(lines.size());
  return Value::list(strings(std::move(lines)));
}

template <bool from_right>
Value partition(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("partition", arguments, {"sep"}, 1);
  interpreter.spend_bytes(self.as_string().size());
  const std::string separator = bound.text(0, "");
  if (separator.empty()) throw Error("empty separator");
  const std::string& text = self.as_string();
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) {
    return Value::tuple(strings(from_right ? std::vector<std::string>{"", "", text}
                                           : std::vector<std::string>{text, "", ""}));
  }
  return Value::tuple(strings({text.substr(0, at), separator, text.substr(at + separator.size())}));
}

template <bool prefix>
Value remove_affix(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound(prefix ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1);
  interpreter.spend_bytes(self.as_string().size());
  const std::string& text = self.as_string();
  const std::string affix = bound.text(0, "");
  if (prefix ? !text.starts_with(affix) : !text.ends_with(affix)) return self;
  return Value::string(prefix ? text.substr(affix.size()) : text.substr(0, text.size() - affix.size()));
}

enum class Align { left, right, centre, zeros };

template <Align align>
Value justify(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("justify", arguments, {"width", "fillchar"}, 1);
  const int64_t width = bound.integer(0, 0);
  const std::string fill = bound.text(1, align == Align::zeros ? "0" : " ");
  const std::string& text = self.as_string();
  if (count_code_points(fill) != 1) throw Error("The fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(count_code_points(text));
  if (width <= length) return self;
  if (width > 1'000'000) throw Error("a width of more than 1000000");
  const auto missing = static_cast<size_t>(width - length);
  interpreter.spend_bytes(text.size() + missing * fill.size());
  const auto padding = [&](size_t times) { return python::replace(std::string(times, ' '), " ", fill, -1); };
  if (align == Align::left) return Value::string(text + padding(missing));
  if (align == Align::right) return Value::string(padding(missing) + text);
  if (align == Align::zeros) {
    const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
    return Value::string(text.substr(0, sign) + padding(missing) + text.substr(sign));
  }
  const size_t before = missing / 2 + (missing & static_cast<size_t>(width) & 1);
  return Value::string(padding(before) + text + padding(missing - before));
}

// True when the text is not empty and every character passes.
template <bool (*passes)(char32_t)>
Value all_are(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  const std::string& text = self.as_string();
  interpreter.spend_bytes(text.size());
  for (size_t at = 0; at < text.size();) {
    if (!passes(next_code_point(text, at))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

bool is_alphanumeric(char32_t point) { return python::is_alphabetic(point) || python::is_numeric(point); }
bool is_ascii(char32_t point) { return point < 0x80; }

// Cased characters are there, and all of them are of that case.
template <bool upper>
Value case_is(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound(upper ? "isupper" : "islower", arguments, {});
  const std::string& text = self.as_string();
  interpreter.spend_bytes(text.size());
  bool seen = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_code_point(text, at);
    if (upper ? python::is_lower(point) : python::is_upper(point)) return Value::boolean(false);
    seen = seen || (upper ? python::is_upper(point) : python::is_lower(point));
  }
  return Value::boolean(seen);
}

Value format(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return Value::string(format_fields(interpreter, self.as_string(), arguments));
}

Value dict_get(Interpreter&, const Value& self, const Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"}, 1);
  const Value* found = self.as_dict().find(bound[0]);
  return found != nullptr ? *found : bound.value(1, Value::none());
}

Value view(std::string label, std::vector<Value> items) {
  List list;
  list.kind = ListKind::view;
  list.label = std::move(label);
  list.items = std::move(items);
  return Value::of(std::move(list));
}

Value dict_items(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("items", arguments, {});
  interpreter.spend(self.as_dict().size());
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.as_dict().entries()) pairs.push_back(Value::tuple({key, value}));
  return view("dict_items", std::move(pairs));
}

Value dict_keys(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("keys", arguments, {});
  return view("dict_keys", iterate(interpreter, self));
}

Value dict_values(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("values", arguments, {});
  interpreter.spend(self.as_dict().size());
  std::vector<Value> values;
  for (const auto& [key, value] : self.as_dict().entries()) values.push_back(value);
  return view("dict_values", std::move(values));
}

Value copy(Interpreter&, const Value& self, const Arguments& arguments) {
  const Bound bound("copy", arguments, {});
  return self;
}

Value list_index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("index", arguments, {"value"}, 1);
  const auto& items = self.as_list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(interpreter, items[i], bound[0])) return Value::integer(static_cast<int64_t>(i));
  }
  throw Error(to_repr(bound[0]) + " is not in list");
}

Value list_count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  const auto& items = self.as_list().items;
  return Value::integer(std::count_if(items.begin(), items.end(),
                                      [&](const Value& item) { return equal(interpreter, item, bound[0]); }));
}

using Table = std::unordered_map<std::string_view, Method>;

const Table& string_methods() {
  static const Table table = {
      {"strip", strip<Side::both>},
      {"lstrip", strip<Side::left>},
      {"rstrip", strip<Side::right>},
      {"split", split<false>},
      {"rsplit", split<true>},
      {"splitlines", split_lines},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"startswith", begins_or_ends<true>},
      {"endswith", begins_or_ends<false>},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"replace", replace},
      {"join", join},
      {"find", find<false, false>},
      {"rfind", find<true, false>},
      {"index", find<false, true>},
      {"rindex", find<true, true>},
      {"count", count},
      {"upper", mapped<python::upper>},
      {"lower", mapped<python::lower>},
      {"casefold", mapped<python::lower>},
      {"title", mapped<python::title>},
      {"capitalize", mapped<python::capitalize>},
      {"swapcase", mapped<python::swap_case>},
      {"ljust", justify<Align::left>},
      {"rjust", justify<Align::right>},
      {"center", justify<Align::centre>},
      {"zfill", justify<Align::zeros>},
      {"isalpha", all_are<python::is_alphabetic>},
      {"isdigit", all_are<python::is_numeric_digit>},
      {"isdecimal", all_are<python::is_decimal>},
      {"isnumeric", all_are<python::is_numeric>},
      {"isalnum", all_are<is_alphanumeric>},
      {"isspace", all_are<python::is_space>},
      {"isascii", all_are<is_ascii>},
      {"isupper", case_is<true>},
      {"islower", case_is<false>},
      {"format", format},
  };
  return table;
}

const Table& dict_methods() {
  static const Table table = {
      {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"copy", copy}};
  return table;
}

const Table& list_methods() {
  static const Table table = {{"index", list_index}, {"count", list_count}, {"copy", copy}};
  return table;
}

}  // namespace

Method find_method(const Value& self, std::string_view name) {
  const Table* table = nullptr;
  if (self.is_string()) table = &string_methods();
  if (self.is(Value::Kind::dict)) table = &dict_methods();
  if (self.is(Value::Kind::list) &&
      (self.as_list().kind == ListKind::list || (self.as_list().kind != ListKind::generator &&
                                                 self.as_list().kind != ListKind::view && name != "copy"))) {
    table = &list_methods();
  }
  if (table == nullptr) return nullptr;
  const auto found = table->find(name);
  return found == table->end() ? nullptr : found->second;
}

}  // namespace sluice::text::jinja
