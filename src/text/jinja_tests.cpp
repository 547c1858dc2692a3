// What stands behind "is".
#include <unordered_map>

#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"

namespace sluice::text::jinja {
namespace {

using Kind = Value::Kind;

template <bool (*holds)(const Value&)>
bool unary(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("test", arguments, {});
  return holds(value);
}

template <Operator op>
bool comparison(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("test", arguments, {"other"}, 1);
  return compare(interpreter, op, value, bound[0]);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is(Kind::boolean); }
bool is_true(const Value& value) { return value.is(Kind::boolean) && value.as_boolean(); }
bool is_false(const Value& value) { return value.is(Kind::boolean) && !value.as_boolean(); }
bool is_integer(const Value& value) { return value.is(Kind::integer); }
bool is_float(const Value& value) { return value.is(Kind::number); }
bool is_number(const Value& value) { return value.is_numeric(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.is(Kind::dict); }
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is(Kind::list) || value.is(Kind::dict);
}
bool is_sequence(const Value& value) {
  return is_iterable(value) && !(value.is(Kind::list) && (value.as_list().kind == ListKind::generator ||
                                                          value.as_list().kind == ListKind::view));
}
bool is_callable(const Value& value) {
  return value.is_undefined() || (value.is(Kind::object) && value.as_object().callable());
}
bool never(const Value&) { return false; }

int64_t remainder(Interpreter& interpreter, const Value& value, const Value& divisor) {
  const Value rest = arithmetic(interpreter, Operator::modulo, value, divisor);
  if (rest.is_integral()) return rest.as_integer();
  if (!rest.is(Kind::number)) throw Error("not a number: " + rest.type_name());
  return rest.as_number() == 0 ? 0 : rest.as_number() == 1 ? 1 : 2;
}

bool is_odd(Interpreter& interpreter, const Value& value, const Arguments&) {
  return remainder(interpreter, value, Value::integer(2)) == 1;
}
bool is_even(Interpreter& interpreter, const Value& value, const Arguments&) {
  return remainder(interpreter, value, Value::integer(2)) == 0;
}
bool is_divisible(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  return remainder(interpreter, value, bound[0]) == 0;
}

// Python's `is`: containers by identity, simple values by kind and value.
bool is_same(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  if (value.kind() != bound[0].kind()) return false;
  if (value.is(Kind::list) || value.is(Kind::dict) || value.is(Kind::object)) {
    return value.identity() == bound[0].identity();
  }
  return equal(interpreter, value, bound[0]);
}

template <bool upper>
bool case_is(Interpreter& interpreter, const Value& value, const Arguments&) {
  const Value text = Value::string(to_text(value));
  return find_method(text, upper ? "isupper" : "islower")(interpreter, text, Arguments()).truthy();
}

bool is_filter(const Value& value) { return value.is_string() && find_filter(value.as_string()) != nullptr; }
bool is_test(const Value& value) { return value.is_string() && find_test(value.as_string()) != nullptr; }

}  // namespace

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> table = {
      {"boolean", unary<is_boolean>},
      {"callable", unary<is_callable>},
      {"defined", unary<is_defined>},
      {"divisibleby", is_divisible},
      {"eq", comparison<Operator::equal>},
      {"==", comparison<Operator::equal>},
      {"equalto", comparison<Operator::equal>},
      {"escaped", unary<never>},
      {"even", is_even},
      {"false", unary<is_false>},
      {"filter", unary<is_filter>},
      {"float", unary<is_float>},
      {"ge", comparison<Operator::greater_equal>},
      {">=", comparison<Operator::greater_equal>},
      {"greaterthan", comparison<Operator::greater>},
      {"gt", comparison<Operator::greater>},
      {">", comparison<Operator::greater>},
      {"in", comparison<Operator::in>},
      {"integer", unary<is_integer>},
      {"iterable", unary<is_iterable>},
      {"le", comparison<Operator::less_equal>},
      {"<=", comparison<Operator::less_equal>},
      {"lessthan", comparison<Operator::less>},
      {"lower", case_is<false>},
      {"lt", comparison<Operator::less>},
      {"<", comparison<Operator::less>},
      {"mapping", unary<is_mapping>},
      {"ne", comparison<Operator::not_equal>},
      {"!=", comparison<Operator::not_equal>},
      {"none", unary<is_none>},
      {"number", unary<is_number>},
      {"odd", is_odd},
      {"sameas", is_same},
      {"sequence", unary<is_sequence>},
      {"string", unary<is_string>},
      {"test", unary<is_test>},
      {"true", unary<is_true>},
      {"undefined", unary<is_undefined>},
      {"upper", case_is<true>},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace sluice::text::jinja
