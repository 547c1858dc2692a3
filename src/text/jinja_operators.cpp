#include "text/jinja_operators.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_strings.h"

namespace sluice::text::jinja {
namespace {

using Kind = Value::Kind;

// What an element of a new list costs: its memory more than its time.
constexpr size_t kElementWork = 4;

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
  constexpr int64_t kMost = 16 << 20;
  times = std::max<int64_t>(times, 0);
  if (times > kMost) throw Error("a repetition of more than 16 Mi times");
  const auto count = static_cast<size_t>(times);
  if (sequence.is_string()) {
    const std::string& text = sequence.as_string();
    check_text_size(text.size() * count);
    interpreter.spend_bytes(text.size() * count);
    std::string out;
    out.reserve(text.size() * count);
    for (size_t i = 0; i < count; ++i) out += text;
    return Value::string(std::move(out));
  }
  const List& list = sequence.as_list();
  interpreter.spend(kElementWork * list.items.size() * count);
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
    check_text_size(left.as_string().size() + right.as_string().size());
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
  interpreter.spend(kElementWork * (left.as_list().items.size() + right.as_list().items.size()));
  out.items = left.as_list().items;
  out.items.insert(out.items.end(), right.as_list().items.begin(), right.as_list().items.end());
  return Value::of(std::move(out));
}

int order_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return left.as_integer() < right.as_integer() ? -1 : left.as_integer() > right.as_integer() ? 1 : 0;
  }
  return left.as_number() < right.as_number() ? -1 : left.as_number() > right.as_number() ? 1 : 0;
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

}  // namespace sluice::text::jinja
