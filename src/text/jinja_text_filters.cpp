// Filters that make text or numbers of one value.
#include <fmt/core.h>

#include <cmath>
#include <limits>
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

using Kind = Value::Kind;

std::string text_of(Interpreter& interpreter, const Value& value) {
  std::string text = to_text(value);
  interpreter.spend_bytes(text.size());
  return text;
}

template <std::string (*map)(std::string_view)>
Value mapped(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("filter", arguments, {});
  return Value::string(map(text_of(interpreter, value)));
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string same(std::string_view text) { return std::string(text); }

// Not str.title: words begin behind blanks, hyphens and opening brackets only.
std::string title(std::string_view text) {
  std::string out;
  bool first = true;
  for (const std::string& character : python::characters(text)) {
    size_t at = 0;
    const char32_t point = next_code_point(character, at);
    if (python::is_space(point) || std::string_view("-({[<").find(character) != std::string_view::npos) {
      out += character;
      first = true;
    } else {
      out += std::exchange(first, false) ? python::upper(character) : python::lower(character);
    }
  }
  return out;
}

Value trim(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const std::string text = text_of(interpreter, value);
  const std::string characters = bound.text(0, "");
  const bool given = bound.has(0) && !bound[0].is_none();
  return Value::string(std::string(python::strip(
      text, python::Side::both, given ? std::optional<std::string_view>(characters) : std::nullopt)));
}

Value replace(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return Value::string(replaced(interpreter, text_of(interpreter, value), to_text(bound[0]),
                                to_text(bound[1]), bound.integer(2, -1)));
}

Value center(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  Arguments width;
  width.positional = {Value::integer(bound.integer(0, 80))};
  const Value text = Value::string(text_of(interpreter, value));
  return find_method(text, "center")(interpreter, text, width);
}

Value indent(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (value.is_undefined()) throw Error(value.undefined_message());
  if (!value.is_string()) throw Error("indent wants a str, not " + value.type_name());
  std::string margin;
  if (bound.has(0) && bound[0].is_string()) {
    margin = bound[0].as_string();
  } else {
    const int64_t width = bound.integer(0, 4);
    if (width > 10'000) throw Error("indent(): a width of more than 10000");
    margin.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool first = bound.boolean(1, false);
  const bool blank = bound.boolean(2, false);
  const auto lines = python::split_lines(text_of(interpreter, value) + "\n", false);
  interpreter.spend_bytes(lines.size() * (margin.size() + 1));
  std::string out = first ? margin : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += blank || !lines[i].empty() ? "\n" + margin : "\n";
    out += lines[i];
  }
  return Value::string(std::move(out));
}

Value truncate(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t most = bound.integer(0, 255);
  const auto size = length(value);
  if (size && *size - most <= bound.integer(3, 5)) return value;
  if (!value.is_string()) throw Error("truncate wants a str, not " + value.type_name());
  const std::string text = text_of(interpreter, value);
  const std::string end = bound.text(2, "...");
  const int64_t kept = most - static_cast<int64_t>(count_code_points(end));
  if (kept < 0) throw Error("truncate(): the length is less than that of the end");
  std::string shortened = text.substr(0, python::byte_of(text, static_cast<size_t>(kept)));
  if (!bound.boolean(1, false)) shortened = shortened.substr(0, shortened.rfind(' '));
  return Value::string(shortened + end);
}

Value word_count(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("wordcount", arguments, {});
  const std::string text = text_of(interpreter, value);
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const bool word = is_word_character(next_code_point(text, at));
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer(words);
}

// In a query string a blank is '+' and a slash is quoted.
std::string quoted(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query);
    if (plain) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Value url_encode(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("urlencode", arguments, {});
  if (!value.is(Kind::dict) && !value.is(Kind::list)) {
    return Value::string(quoted(text_of(interpreter, value), false));
  }
  std::vector<Value> pairs = iterate(interpreter, value);
  std::string out;
  for (const Value& item : pairs) {
    const Value pair = value.is(Kind::dict) ? Value::tuple({item, *value.as_dict().find(item)}) : item;
    const std::vector<Value> parts = iterate(interpreter, pair);
    if (parts.size() != 2) throw Error("urlencode(): pairs of two are wanted");
    if (!out.empty()) out += '&';
    out += quoted(text_of(interpreter, parts[0]), true) + "=" + quoted(text_of(interpreter, parts[1]), true);
  }
  return Value::string(std::move(out));
}

Value format(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty()) {
    throw Error("can't handle positional and keyword arguments at the same time");
  }
  if (arguments.keyword.empty()) {
    return Value::string(format_percent(interpreter, to_text(value), Value::tuple(arguments.positional)));
  }
  Dict named;
  for (const auto& [name, item] : arguments.keyword) named.set(name, item);
  return Value::string(format_percent(interpreter, to_text(value), Value::of(std::move(named))));
}

int64_t checked_integer(double number) {
  constexpr double kLimit = 9.2233720368547748e18;
  if (!(std::abs(number) < kLimit)) throw Error("an integer of more than 64 bits");
  return static_cast<int64_t>(number);
}

Value to_integer(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  if (value.is_undefined()) throw Error(value.undefined_message());
  if (value.is_integral()) return Value::integer(value.as_integer());
  if (value.is(Kind::number) && std::isfinite(value.as_number())) {
    return Value::integer(checked_integer(value.as_number()));
  }
  if (value.is_string()) {
    if (const auto parsed = parse_integer(value.as_string(), static_cast<int>(bound.integer(1, 10)))) {
      return Value::integer(*parsed);
    }
    if (const auto parsed = parse_number(value.as_string()); parsed && std::isfinite(*parsed)) {
      return Value::integer(checked_integer(*parsed));
    }
  }
  return bound.value(0, Value::integer(0));
}

Value to_number(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  if (value.is_undefined()) throw Error(value.undefined_message());
  if (value.is_numeric()) return Value::number(value.as_number());
  if (value.is_string()) {
    if (const auto parsed = parse_number(value.as_string())) return Value::number(*parsed);
  }
  return bound.value(0, Value::number(0));
}

Value absolute(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("abs", arguments, {});
  if (value.is_integral()) return value.as_integer() < 0 ? negated(value) : positive(value);
  if (value.is(Kind::number)) return Value::number(std::abs(value.as_number()));
  throw Error("bad operand type for abs(): '" + value.type_name() + "'");
}

// To the nearest, ties to the even neighbour of the exact binary value: what printf does.
double rounded(double number, int64_t digits) {
  if (!std::isfinite(number) || digits > 300) return number;
  if (digits >= 0) return *parse_number(fmt::format("{:.{}f}", number, digits));
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(number / scale) * scale;
}

Value round(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const int64_t digits = bound.integer(0, 0);
  const std::string method = bound.text(1, "common");
  if (!value.is_numeric()) {
    throw Error("type " + value.type_name() + " doesn't define __round__ method");
  }
  if (method == "common") {
    if (value.is_integral() && digits >= 0) return Value::integer(value.as_integer());
    const double number = rounded(value.as_number(), digits);
    return value.is_integral() ? Value::integer(checked_integer(number)) : Value::number(number);
  }
  if (method != "ceil" && method != "floor") throw Error("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.as_number() * scale;
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

// transformers' tojson: json.dumps without HTML escapes, and without ASCII escapes unless asked for.
Value to_json_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.boolean(0, false);
  style.sort_keys = bound.boolean(3, false);
  style.indented = bound.has(1) && !bound[1].is_none();
  if (style.indented) {
    style.item_separator = ",";
    if (bound[1].is_string()) {
      style.indent = bound[1].as_string();
    } else {
      const int64_t width = bound.integer(1, 0);
      if (width > 1000) throw Error("tojson(): an indent of more than 1000");
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (bound.has(2) && !bound[2].is_none()) {
    const std::vector<Value> separators = iterate(interpreter, bound[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      throw Error("tojson(): separators must be two strings");
    }
    style.item_separator = separators[0].as_string();
    style.key_separator = separators[1].as_string();
  }
  std::string text = to_json(value, style);
  interpreter.spend_bytes(text.size());
  return Value::string(std::move(text));
}

}  // namespace

Filter find_text_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> table = {
      {"abs", absolute},
      {"capitalize", mapped<python::capitalize>},
      {"center", center},
      {"e", mapped<escaped>},
      {"escape", mapped<escaped>},
      {"float", to_number},
      {"forceescape", mapped<escaped>},
      {"format", format},
      {"indent", indent},
      {"int", to_integer},
      {"lower", mapped<python::lower>},
      {"replace", replace},
      {"round", round},
      {"safe", mapped<same>},
      {"string", mapped<same>},
      {"title", mapped<title>},
      {"tojson", to_json_filter},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", mapped<python::upper>},
      {"urlencode", url_encode},
      {"wordcount", word_count},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace sluice::text::jinja
