#include "text/jinja_operators.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_strings.h"
#include "text/python_text.h"
#include "text/unicode.h"

namespace sluice::text::jinja {
namespace {

using Kind = Value::Kind;

const char* sign_of(Operator op) {
  switch (op) {
    case Operator::add:
      return "+";
    case Operator::subtract:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::floor_divide:
      return "//";
    case Operator::modulo:
      return "%";
    case Operator::power:
      return "** or pow()";
    case Operator::less:
      return "<";
    case Operator::less_equal:
      return "<=";
    case Operator::greater:
      return ">";
    case Operator::greater_equal:
      return ">=";
    default:
      return "?";
  }
}

[[noreturn]] void fail_types(const char* sign, const Value& left, const Value& right) {
  throw Error(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", sign, left.type_name(),
                          right.type_name()));
}

[[noreturn]] void fail_overflow() { throw Error("an integer of more than 64 bits"); }

void refuse_undefined(const Value& value) {
  if (value.is_undefined()) throw Error(value.undefined_message());
}

int64_t floor_quotient(int64_t left, int64_t right) {
  if (right == 0) throw Error("integer division or modulo by zero");
  if (left == std::numeric_limits<int64_t>::min() && right == -1) fail_overflow();
  const int64_t quotient = left / right;
  return quotient - (left % right != 0 && (left < 0) != (right < 0) ? 1 : 0);
}

int64_t floor_remainder(int64_t left, int64_t right) {
  if (right == 0) throw Error("integer division or modulo by zero");
  if (right == -1) return 0;
  const int64_t remainder = left % right;
  return remainder != 0 && (remainder < 0) != (right < 0) ? remainder + right : remainder;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw Error("0.0 cannot be raised to a negative power");
    return Value::number(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1 || base == -1) {
    return Value::integer(exponent == 0 ? 1 : base < 0 && exponent % 2 == 0 ? 1 : base);
  }
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) fail_overflow();
  }
  return Value::integer(result);
}

Value integer_arithmetic(Operator op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::add:
      overflow = __builtin_add_overflow(left, right, &result);
      break;
    case Operator::subtract:
      overflow = __builtin_sub_overflow(left, right, &result);
      break;
    case Operator::multiply:
      overflow = __builtin_mul_overflow(left, right, &result);
      break;
    case Operator::divide:
      if (right == 0) throw Error("division by zero");
      return Value::number(static_cast<double>(left) / static_cast<double>(right));
    case Operator::floor_divide:
      result = floor_quotient(left, right);
      break;
    case Operator::modulo:
      result = floor_remainder(left, right);
      break;
    default:
      return integer_power(left, right);
  }
  if (overflow) fail_overflow();
  return Value::integer(result);
}

Value number_arithmetic(Operator op, double left, double right) {
  switch (op) {
    case Operator::add:
      return Value::number(left + right);
    case Operator::subtract:
      return Value::number(left - right);
    case Operator::multiply:
      return Value::number(left * right);
    case Operator::power:
      return Value::number(std::pow(left, right));
    default:
      break;
  }
  if (right == 0) {
    throw Error(op == Operator::divide         ? "float division by zero"
                : op == Operator::floor_divide ? "float floor division by zero"
                                               : "float modulo");
  }
  if (op == Operator::divide) return Value::number(left / right);
  double remainder = std::fmod(left, right);
  if (remainder != 0 && (remainder < 0) != (right < 0)) remainder += right;
  if (op == Operator::modulo) return Value::number(remainder);
  return Value::number(std::round((left - remainder) / right));
}

Value repeated(Interpreter& interpreter, const Value& sequence, int64_t times) {
  constexpr int64_t kMost = 64 << 20;
  times = std::max<int64_t>(times, 0);
  if (times > kMost) throw Error("a repetition of more than 64 Mi times");
  const auto count = static_cast<size_t>(times);
  if (sequence.is_string()) {
    const std::string& text = sequence.as_string();
    interpreter.spend_bytes(text.size() * count);
    std::string out;
    out.reserve(text.size() * count);
    for (size_t i = 0; i < count; ++i) out += text;
    return Value::string(std::move(out));
  }
  const List& list = sequence.as_list();
  interpreter.spend(list.items.size() * count);
  List out;
  out.kind = list.kind;
  for (size_t i = 0; i < count; ++i) out.items.insert(out.items.end(), list.items.begin(), list.items.end());
  return Value::of(std::move(out));
}

bool is_sequence(const Value& value) {
  return value.is_string() || (value.is(Kind::list) && (value.as_list().kind == ListKind::list ||
                                                        value.as_list().kind == ListKind::tuple));
}

Value joined(Interpreter& interpreter, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    interpreter.spend_bytes(left.as_string().size() + right.as_string().size());
    return Value::string(left.as_string() + right.as_string());
  }
  if (left.is_string()) {
    throw Error(fmt::format("can only concatenate str (not \"{}\") to str", right.type_name()));
  }
  if (!is_sequence(left) || !right.is(Kind::list) || left.as_list().kind != right.as_list().kind) {
    fail_types("+", left, right);
  }
  List out;
  out.kind = left.as_list().kind;
  out.items = left.as_list().items;
  out.items.insert(out.items.end(), right.as_list().items.begin(), right.as_list().items.end());
  interpreter.spend(out.items.size());
  return Value::of(std::move(out));
}

int order_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return left.as_integer() < right.as_integer() ? -1 : left.as_integer() > right.as_integer() ? 1 : 0;
  }
  return left.as_number() < right.as_number() ? -1 : left.as_number() > right.as_number() ? 1 : 0;
}

// A range that has these numbers.
std::string range_label(const std::vector<Value>& items) {
  if (items.empty()) return "range(0, 0)";
  const int64_t first = items.front().as_integer();
  const int64_t step = items.size() > 1 ? items[1].as_integer() - first : 1;
  const int64_t stop = items.back().as_integer() + step;
  return step == 1 ? fmt::format("range({}, {})", first, stop)
                   : fmt::format("range({}, {}, {})", first, stop, step);
}

bool lists_comparable(const List& left, const List& right) {
  const auto family = [](ListKind kind) { return kind == ListKind::group ? ListKind::tuple : kind; };
  return family(left.kind) == family(right.kind);
}

}  // namespace

Value arithmetic(Interpreter& interpreter, Operator op, const Value& left, const Value& right) {
  refuse_undefined(left);
  refuse_undefined(right);
  if (left.is_numeric() && right.is_numeric()) {
    if (left.is_integral() && right.is_integral()) {
      return integer_arithmetic(op, left.as_integer(), right.as_integer());
    }
    return number_arithmetic(op, left.as_number(), right.as_number());
  }
  if (op == Operator::add) return joined(interpreter, left, right);
  if (op == Operator::multiply) {
    if (is_sequence(left) && right.is_integral()) return repeated(interpreter, left, right.as_integer());
    if (is_sequence(right) && left.is_integral()) return repeated(interpreter, right, left.as_integer());
  }
  if (op == Operator::modulo && left.is_string()) {
    return Value::string(format_percent(interpreter, left.as_string(), right));
  }
  fail_types(sign_of(op), left, right);
}

Value negated(const Value& value) {
  refuse_undefined(value);
  if (value.is_integral()) return integer_arithmetic(Operator::subtract, 0, value.as_integer());
  if (value.is(Kind::number)) return Value::number(-value.as_number());
  throw Error("bad operand type for unary -: '" + value.type_name() + "'");
}

Value positive(const Value& value) {
  refuse_undefined(value);
  if (value.is_integral()) return Value::integer(value.as_integer());
  if (value.is(Kind::number)) return value;
  throw Error("bad operand type for unary +: '" + value.type_name() + "'");
}

bool equal(Interpreter& interpreter, const Value& left, const Value& right) {
  interpreter.spend(1);
  if (left.is_numeric() && right.is_numeric()) {
    if (left.is_integral() && right.is_integral()) return left.as_integer() == right.as_integer();
    return left.as_number() == right.as_number();
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::string:
      return left.as_string() == right.as_string();
    case Kind::list: {
      const List& a = left.as_list();
      const List& b = right.as_list();
      if (&a == &b) return true;
      if (!lists_comparable(a, b) || a.kind == ListKind::generator || a.items.size() != b.items.size()) {
        return false;
      }
      for (size_t i = 0; i < a.items.size(); ++i) {
        if (!equal(interpreter, a.items[i], b.items[i])) return false;
      }
      return true;
    }
    case Kind::dict: {
      const Dict& a = left.as_dict();
      const Dict& b = right.as_dict();
      if (a.size() != b.size()) return false;
      for (const auto& [key, value] : a.entries()) {
        const Value* other = b.find(key);
        if (other == nullptr || !equal(interpreter, value, *other)) return false;
      }
      return true;
    }
    case Kind::object:
      return left.identity() == right.identity();
    default:
      return true;  // None, undefined
  }
}

int order(Interpreter& interpreter, const Value& left, const Value& right, const char* sign) {
  interpreter.spend(1);
  refuse_undefined(left);
  refuse_undefined(right);
  if (left.is_numeric() && right.is_numeric()) return order_numbers(left, right);
  if (left.is_string() && right.is_string()) return left.as_string().compare(right.as_string());
  if (left.is(Kind::list) && right.is(Kind::list) && lists_comparable(left.as_list(), right.as_list())) {
    const auto& a = left.as_list().items;
    const auto& b = right.as_list().items;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!equal(interpreter, a[i], b[i])) return order(interpreter, a[i], b[i], sign);
    }
    return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
  }
  throw Error(fmt::format("'{}' not supported between instances of '{}' and '{}'", sign, left.type_name(),
                          right.type_name()));
}

bool compare(Interpreter& interpreter, Operator op, const Value& left, const Value& right) {
  if (op == Operator::equal) return equal(interpreter, left, right);
  if (op == Operator::not_equal) return !equal(interpreter, left, right);
  if (op == Operator::in) return contains(interpreter, right, left);
  if (op == Operator::not_in) return !contains(interpreter, right, left);
  const auto is_nan = [](const Value& value) {
    return value.is(Kind::number) && std::isnan(value.as_number());
  };
  const int ordered = order(interpreter, left, right, sign_of(op));
  if (is_nan(left) || is_nan(right)) return false;
  switch (op) {
    case Operator::less:
      return ordered < 0;
    case Operator::less_equal:
      return ordered <= 0;
    case Operator::greater:
      return ordered > 0;
    default:
      return ordered >= 0;
  }
}

bool contains(Interpreter& interpreter, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      throw Error("'in <string>' requires string as left operand, not " + item.type_name());
    }
    interpreter.spend_bytes(container.as_string().size());
    return container.as_string().find(item.as_string()) != std::string::npos;
  }
  if (container.is(Kind::dict)) return container.as_dict().find(item) != nullptr;
  if (container.is(Kind::list) || container.is_undefined()) {
    for (const Value& element : iterate(interpreter, container)) {
      if (equal(interpreter, element, item)) return true;
    }
    return false;
  }
  throw Error("argument of type '" + container.type_name() + "' is not iterable");
}

std::vector<Value> iterate(Interpreter& interpreter, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::undefined:
      return items;
    case Kind::string:
      interpreter.spend(value.as_string().size());
      for (std::string& character : python::characters(value.as_string())) {
        items.push_back(Value::string(std::move(character)));
      }
      return items;
    case Kind::list: {
      const List& list = value.as_list();
      interpreter.spend(list.items.size());
      if (list.kind != ListKind::generator) return list.items;
      items.assign(list.items.begin() + static_cast<std::ptrdiff_t>(list.taken), list.items.end());
      list.taken = list.items.size();
      return items;
    }
    case Kind::dict:
      interpreter.spend(value.as_dict().size());
      for (const auto& [key, unused] : value.as_dict().entries()) items.push_back(key);
      return items;
    default:
      throw Error("'" + value.type_name() + "' object is not iterable");
  }
}

std::optional<int64_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return static_cast<int64_t>(count_code_points(value.as_string()));
    case Kind::list:
      if (value.as_list().kind == ListKind::generator) return std::nullopt;
      return static_cast<int64_t>(value.as_list().items.size());
    case Kind::dict:
      return static_cast<int64_t>(value.as_dict().size());
    default:
      return std::nullopt;
  }
}

std::optional<Value> subscript(Interpreter& interpreter, const Value& container, const Value& key) {
  refuse_undefined(container);
  if (container.is(Kind::dict)) {
    const bool hashable = !key.is(Kind::dict) && !key.is(Kind::object) && !key.is_undefined() &&
                          !(key.is(Kind::list) && key.as_list().kind != ListKind::tuple);
    const Value* found = hashable ? container.as_dict().find(key) : nullptr;
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  const bool indexable =
      container.is_string() || (container.is(Kind::list) && container.as_list().kind != ListKind::generator &&
                                container.as_list().kind != ListKind::view);
  if (!indexable || !key.is_integral()) return std::nullopt;
  if (container.is_string()) interpreter.spend_bytes(container.as_string().size());
  const int64_t size = *length(container);
  const int64_t index = key.as_integer() < 0 ? key.as_integer() + size : key.as_integer();
  if (index < 0 || index >= size) return std::nullopt;
  if (container.is(Kind::list)) return container.as_list().items[static_cast<size_t>(index)];
  const std::string& text = container.as_string();
  const size_t begin = python::byte_of(text, static_cast<size_t>(index));
  size_t end = begin;
  next_code_point(text, end);
  return Value::string(text.substr(begin, end - begin));
}

Value slice(Interpreter& interpreter, const Value& container, const Value& start, const Value& stop,
            const Value& step) {
  refuse_undefined(container);
  const auto bound = [](const Value& value, int64_t absent) {
    if (value.is_none()) return absent;
    if (!value.is_integral()) throw Error("slice indices must be integers or None");
    return value.as_integer();
  };
  const int64_t stride = bound(step, 1);
  if (stride == 0) throw Error("slice step cannot be zero");
  std::vector<Value> all = iterate(interpreter, container);
  const auto size = static_cast<int64_t>(all.size());
  const int64_t lowest = stride > 0 ? 0 : -1;
  const int64_t highest = stride > 0 ? size : size - 1;
  const auto place = [&](const Value& value, int64_t absent) {
    int64_t at = bound(value, absent);
    if (!value.is_none() && at < 0) at = std::max<int64_t>(at, -size - 1) + size;
    return std::clamp(at, lowest, highest);
  };
  const int64_t first = place(start, stride > 0 ? 0 : size - 1);
  const int64_t last = place(stop, stride > 0 ? size : -1);
  std::vector<Value> chosen;
  for (int64_t at = first; stride > 0 ? at < last : at > last;) {
    chosen.push_back(all[static_cast<size_t>(at)]);
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  if (!container.is_string()) {
    List list;
    const ListKind kind = container.as_list().kind;
    list.kind = kind == ListKind::group ? ListKind::tuple : kind;
    if (kind == ListKind::range) list.label = range_label(chosen);
    list.items = std::move(chosen);
    return Value::of(std::move(list));
  }
  std::string text;
  for (const Value& character : chosen) text += character.as_string();
  return Value::string(std::move(text));
}

}  // namespace sluice::text::jinja
