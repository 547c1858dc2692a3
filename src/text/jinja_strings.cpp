#include "text/jinja_strings.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/python_text.h"
#include "text/unicode.h"

namespace sluice::text::jinja {
namespace {

constexpr int kMaxWidth = 100'000;

// Digits with single underscores between them, as Python's literals allow; the underscores gone.
std::optional<std::string> plain_digits(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || text[i - 1] == '_') {
      return std::nullopt;
    }
  }
  return out;
}

// One conversion of a % format: flags, width, precision.
struct Conversion {
  bool left = false;
  bool zero = false;
  bool plus = false;
  bool space = false;
  bool alternate = false;
  int width = 0;
  int precision = -1;
  char kind = 's';
};

std::string padded(std::string text, const Conversion& conversion, bool number) {
  const auto length = static_cast<int>(count_code_points(text));
  if (length >= conversion.width) return text;
  const auto fill = static_cast<size_t>(conversion.width - length);
  if (conversion.left) return text + std::string(fill, ' ');
  if (!conversion.zero || !number) return std::string(fill, ' ') + text;
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
  return text.substr(0, sign) + std::string(fill, '0') + text.substr(sign);
}

int64_t truncated(const Value& value, char kind) {
  if (value.is_integral()) return value.as_integer();
  if (value.is(Value::Kind::number) && std::abs(value.as_number()) < 9e18 && kind != 'x' && kind != 'X' &&
      kind != 'o') {
    return static_cast<int64_t>(value.as_number());
  }
  throw Error(fmt::format("%{} format: a real number is required, not {}", kind, value.type_name()));
}

std::string hexadecimal(int64_t number, bool prefix, bool upper) {
  if (prefix) return upper ? fmt::format("{:#X}", number) : fmt::format("{:#x}", number);
  return upper ? fmt::format("{:X}", number) : fmt::format("{:x}", number);
}

std::string formatted(const Conversion& c, const Value& value) {
  const char* sign = c.plus ? "+" : c.space ? " " : "";
  switch (c.kind) {
    case 's':
    case 'r':
    case 'a': {
      std::string text = c.kind == 's' ? to_text(value) : to_repr(value);
      if (c.precision >= 0) text = text.substr(0, python::byte_of(text, static_cast<size_t>(c.precision)));
      return padded(std::move(text), c, false);
    }
    case 'd':
    case 'i':
    case 'u': {
      const int64_t number = truncated(value, c.kind);
      return padded((number < 0 ? "" : sign) + std::to_string(number), c, true);
    }
    case 'x':
      return padded(hexadecimal(truncated(value, c.kind), c.alternate, false), c, true);
    case 'X':
      return padded(hexadecimal(truncated(value, c.kind), c.alternate, true), c, true);
    case 'o':
      return padded(fmt::format("{:o}", truncated(value, c.kind)), c, true);
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G': {
      if (!value.is_numeric()) throw Error("must be real number, not " + value.type_name());
      const double number = value.as_number();
      const std::string spec = fmt::format("{{:.{}{}}}", c.precision < 0 ? 6 : c.precision, c.kind);
      return padded((std::signbit(number) ? "" : sign) + fmt::format(fmt::runtime(spec), number), c, true);
    }
    case 'c':
      if (value.is_string()) return padded(value.as_string(), c, false);
      break;
    default:
      break;
  }
  throw Error(fmt::format("unsupported format character '{}'", c.kind));
}

class PercentFormat {
 public:
  PercentFormat(std::string_view text, const Value& arguments) : text_(text), arguments_(arguments) {
    if (arguments.is(Value::Kind::list) && arguments.as_list().kind == ListKind::tuple) {
      items_ = arguments.as_list().items;
    } else {
      items_ = {arguments};
    }
  }

  std::string run() {
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c != '%') {
        out += c;
      } else if (at_ < text_.size() && text_[at_] == '%') {
        out += '%';
        ++at_;
      } else {
        out += conversion();
      }
      check_text_size(out.size());
    }
    // Python takes a list for a mapping here, and does not ask whether it was used.
    const bool mapping = arguments_.is(Value::Kind::dict) ||
                         (arguments_.is(Value::Kind::list) && arguments_.as_list().kind != ListKind::tuple);
    if (next_ < items_.size() && !mapping) {
      throw Error("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  Value next_item() {
    if (next_ >= items_.size()) throw Error("not enough arguments for format string");
    return items_[next_++];
  }

  int number() {
    if (peek() == '*') {
      ++at_;
      const Value value = next_item();
      if (!value.is_integral()) throw Error("* wants int");
      return checked(value.as_integer());
    }
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') value = checked(value * 10 + (text_[at_++] - '0'));
    return static_cast<int>(value);
  }

  static int checked(int64_t width) {
    if (width < -kMaxWidth || width > kMaxWidth) throw Error("a format width over 100000");
    return static_cast<int>(width);
  }

  std::string conversion() {
    std::optional<Value> named;
    if (peek() == '(') {
      const size_t close = text_.find(')', at_);
      if (close == std::string_view::npos) throw Error("incomplete format key");
      if (!arguments_.is(Value::Kind::dict)) throw Error("format requires a mapping");
      const std::string key(text_.substr(at_ + 1, close - at_ - 1));
      const Value* found = arguments_.as_dict().find(key);
      if (found == nullptr) throw Error(repr_string(key));
      named = *found;
      at_ = close + 1;
    }
    Conversion c;
    for (;; ++at_) {
      if (peek() == '-') {
        c.left = true;
      } else if (peek() == '0') {
        c.zero = true;
      } else if (peek() == '+') {
        c.plus = true;
      } else if (peek() == ' ') {
        c.space = true;
      } else if (peek() == '#') {
        c.alternate = true;
      } else {
        break;
      }
    }
    c.width = number();
    if (c.width < 0) {
      c.left = true;
      c.width = -c.width;
    }
    if (peek() == '.') {
      ++at_;
      c.precision = std::min(std::max(number(), 0), 1000);
    }
    if (at_ >= text_.size()) throw Error("incomplete format");
    c.kind = text_[at_++];
    return formatted(c, named ? *named : next_item());
  }

  std::string_view text_;
  const Value& arguments_;
  std::vector<Value> items_;
  size_t next_ = 0;
  size_t at_ = 0;
};

// The value of a replacement field: a name or number, then .attributes and [items].
Value field_value(Interpreter& interpreter, std::string_view field, const Arguments& arguments,
                  size_t& next) {
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view first = field.substr(0, end);
  Value value;
  if (first.empty() || first.find_first_not_of("0123456789") == std::string_view::npos) {
    const auto index = first.empty() ? static_cast<int64_t>(next++) : parse_integer(first, 10).value_or(-1);
    if (index < 0 || static_cast<size_t>(index) >= arguments.positional.size()) {
      throw Error(fmt::format("Replacement index {} out of range for positional args tuple", index));
    }
    value = arguments.positional[static_cast<size_t>(index)];
  } else {
    const auto found = std::find_if(arguments.keyword.begin(), arguments.keyword.end(),
                                    [&](const auto& argument) { return argument.first == first; });
    if (found == arguments.keyword.end()) throw Error(repr_string(first));
    value = found->second;
  }
  for (size_t at = end; at < field.size();) {
    const bool bracket = field[at] == '[';
    const size_t stop =
        bracket ? field.find(']', at) : std::min(field.find_first_of(".[", at + 1), field.size());
    if (stop == std::string_view::npos) throw Error("expected ']' in a format field");
    const std::string key(field.substr(at + 1, stop - at - 1));
    const auto number = bracket ? parse_integer(key, 10) : std::nullopt;
    value = !bracket ? interpreter.attribute(value, key)
            : number ? interpreter.item(value, Value::integer(*number))
                     : interpreter.item(value, Value::string(key));
    at = stop + (bracket ? 1 : 0);
  }
  return value;
}

}  // namespace

std::string format_percent(Interpreter& interpreter, std::string_view text, const Value& arguments) {
  std::string out = PercentFormat(text, arguments).run();
  interpreter.spend_bytes(out.size());
  return out;
}

std::string format_fields(Interpreter& interpreter, std::string_view text, const Arguments& arguments) {
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      at += 2;
    } else if (c == '}') {
      throw Error("Single '}' encountered in format string");
    } else if (c == '{') {
      const size_t close = text.find('}', at);
      if (close == std::string_view::npos) throw Error("expected '}' before end of string");
      std::string_view field = text.substr(at + 1, close - at - 1);
      if (field.find(':') != std::string_view::npos) {
        throw Error("format specifications ('{:...}') are not supported");
      }
      const size_t mark = field.find('!');
      const bool repr = mark != std::string_view::npos && field.substr(mark) == "!r";
      field = field.substr(0, mark);
      const Value value = field_value(interpreter, field, arguments, next);
      out += repr ? to_repr(value) : to_text(value);
      at = close + 1;
    } else {
      out += c;
      ++at;
    }
    check_text_size(out.size());
  }
  interpreter.spend_bytes(out.size());
  return out;
}

std::string replaced(Interpreter& interpreter, std::string_view text, std::string_view old,
                     std::string_view with, int64_t most) {
  size_t matches = 0;
  if (old.empty()) {
    matches = count_code_points(text) + 1;
  } else {
    for (size_t at = text.find(old); at != std::string_view::npos; at = text.find(old, at + old.size())) {
      ++matches;
    }
  }
  if (most >= 0) matches = std::min(matches, static_cast<size_t>(most));
  check_text_size(matches * with.size());  // at most 16 Mi times 16 Mi: no overflow
  interpreter.spend_bytes(text.size() + matches * with.size());
  return python::replace(text, old, with, most);
}

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  text = python::strip(text, python::Side::both);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefixed != 0 && (base == prefixed || base == 0)) {
      base = prefixed;
      text.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36) throw Error("int() base must be >= 2 and <= 36, or 0");
  const auto digits = plain_digits(text);
  if (!digits || digits->empty()) return std::nullopt;
  const std::string signed_digits = (negative ? "-" : "") + *digits;
  int64_t value = 0;
  const char* end = signed_digits.data() + signed_digits.size();
  const auto read = std::from_chars(signed_digits.data(), end, value, base);
  if (read.ec == std::errc::result_out_of_range) throw Error("an integer of more than 64 bits");
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  const auto digits = plain_digits(python::strip(text, python::Side::both));
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  bool negative = false;
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') return std::nullopt;
  double value = 0;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (read.ptr != rest.data() + rest.size()) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) {
    value = std::strtod(std::string(rest).c_str(), nullptr);
  } else if (read.ec != std::errc()) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

}  // namespace sluice::text::jinja
