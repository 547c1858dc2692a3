// The Interpreter's expressions.
#include <fmt/core.h>

#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_level.h"
#include "text/jinja_objects.h"
#include "text/jinja_operators.h"

namespace sluice::text::jinja {
namespace {

// "'str object' has no attribute 'x'", "list object has no element 3".
Value missing(const Value& object, const Value& key) {
  const std::string owner = object.is_none() ? "None" : object.type_name() + " object";
  if (key.is_string()) {
    return Value::undefined(
        fmt::format("{} has no attribute {}", repr_string(owner), repr_string(key.as_string())));
  }
  return Value::undefined(fmt::format("{} has no element {}", owner, to_repr(key)));
}

// Attributes that the sandbox keeps from templates: Python's internals, and what would change a value.
bool is_unsafe(const Value& object, std::string_view name) {
  if (name.starts_with("__")) return true;
  if (object.is(Value::Kind::dict)) {
    return name == "clear" || name == "pop" || name == "popitem" || name == "setdefault" || name == "update";
  }
  if (object.is(Value::Kind::list) && object.as_list().kind == ListKind::list) {
    return name == "append" || name == "clear" || name == "pop" || name == "reverse" || name == "insert" ||
           name == "sort" || name == "extend" || name == "remove";
  }
  return false;
}

// An attribute by Python's rules, without falling back to items.
std::optional<Value> own_attribute(Interpreter& interpreter, const Value& object, std::string_view name) {
  if (is_unsafe(object, name)) {
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, object.type_name()));
  }
  if (const Method method = find_method(object, name)) {
    return make_function(std::string(name), [object, method](Interpreter& in, const Arguments& arguments) {
      return method(in, object, arguments);
    });
  }
  if (object.is(Value::Kind::object)) return object.as_object().attribute(interpreter, name);
  if (object.is(Value::Kind::list) && object.as_list().kind == ListKind::group) {
    if (name == "grouper") return object.as_list().items[0];
    if (name == "list") return object.as_list().items[1];
  }
  return std::nullopt;
}

}  // namespace

Value Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) throw Error(object.undefined_message());
  if (auto found = own_attribute(*this, object, name)) return *found;
  if (object.is(Value::Kind::dict)) {
    if (const Value* found = object.as_dict().find(name)) return *found;
  }
  return missing(object, Value::string(std::string(name)));
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (auto found = subscript(*this, object, key)) return *found;
  if (key.is_string()) {
    if (auto found = own_attribute(*this, object, key.as_string())) return *found;
  }
  return missing(object, key);
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) throw Error(callee.undefined_message());
  if (!callee.is(Value::Kind::object) || !callee.as_object().callable()) {
    throw Error("'" + callee.type_name() + "' object is not callable");
  }
  spend(1);
  return callee.as_object().call(*this, arguments);
}

Value Interpreter::filter(const std::string& name, const Value& value, const Arguments& arguments) {
  const Filter function = find_filter(name);
  if (function == nullptr) throw Error("No filter named '" + name + "'.");
  spend(1);
  return function(*this, value, arguments);
}

bool Interpreter::test(const std::string& name, const Value& value, const Arguments& arguments) {
  const Test function = find_test(name);
  if (function == nullptr) throw Error("No test named '" + name + "'.");
  spend(1);
  return function(*this, value, arguments);
}

Value Interpreter::evaluate(const Expr& expr, const ScopePointer& scope) {
  using Kind = Expr::Kind;
  const Level level(*this, depth_);
  line_ = expr.line;
  spend(1);
  const auto operand = [&](size_t i) { return evaluate(*expr.items[i], scope); };
  switch (expr.kind) {
    case Kind::constant:
      return expr.constant;
    case Kind::name:
      return evaluate_name(expr, scope);
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
      return evaluate_display(expr, scope);
    case Kind::attribute:
      return attribute(operand(0), expr.text);
    case Kind::item:
      return evaluate_item(expr, scope);
    case Kind::call:
      return evaluate_call(expr, scope);
    case Kind::filter:
      return evaluate_filter(expr, operand(0), scope);
    case Kind::test: {
      const Value value = operand(0);
      return Value::boolean(test(expr.text, value, evaluate_arguments(expr, scope)));
    }
    case Kind::logical_not:
      return Value::boolean(!operand(0).truthy());
    case Kind::negative:
      return negated(operand(0));
    case Kind::positive:
      return positive(operand(0));
    case Kind::binary: {
      const Value left = operand(0);
      return arithmetic(*this, expr.operators[0], left, operand(1));
    }
    case Kind::concat:
      return evaluate_concat(expr, scope);
    case Kind::compare:
      return evaluate_comparison(expr, scope);
    case Kind::logical_and: {
      Value left = operand(0);
      return left.truthy() ? operand(1) : left;
    }
    case Kind::logical_or: {
      Value left = operand(0);
      return left.truthy() ? left : operand(1);
    }
    case Kind::conditional:
      return evaluate_conditional(expr, scope);
    case Kind::slice:
    case Kind::space_item:
      break;
  }
  throw Error("a slice stands only between the brackets of an index");
}

Value Interpreter::evaluate_name(const Expr& expr, const ScopePointer& scope) {
  if (const Value* found = scope->find(expr.text)) return *found;
  if (auto global = find_global(expr.text)) return *global;
  return Value::undefined("'" + expr.text + "' is undefined");
}

Value Interpreter::evaluate_display(const Expr& expr, const ScopePointer& scope) {
  if (expr.kind == Expr::Kind::dict) {
    Dict dict;
    for (size_t i = 0; i < expr.items.size(); i += 2) {
      const Value key = evaluate(*expr.items[i], scope);
      dict.set(key, evaluate(*expr.items[i + 1], scope));
    }
    return Value::of(std::move(dict));
  }
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const Expr* item : expr.items) items.push_back(evaluate(*item, scope));
  return expr.kind == Expr::Kind::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value Interpreter::evaluate_item(const Expr& expr, const ScopePointer& scope) {
  const Value object = evaluate(*expr.items[0], scope);
  const Expr& key = *expr.items[1];
  if (key.kind != Expr::Kind::slice) return item(object, evaluate(key, scope));
  const auto part = [&](size_t i) {
    return key.items[i] == nullptr ? Value::none() : evaluate(*key.items[i], scope);
  };
  const Value start = part(0);
  const Value stop = part(1);
  const Value step = part(2);
  const bool sliceable = object.is_string() || object.is_undefined() ||
                         (object.is(Value::Kind::list) && object.as_list().kind != ListKind::generator &&
                          object.as_list().kind != ListKind::view);
  if (!sliceable) throw Error("'" + object.type_name() + "' object cannot be sliced");
  return slice(*this, object, start, stop, step);
}

Arguments Interpreter::evaluate_arguments(const Expr& call, const ScopePointer& scope) {
  Arguments arguments;
  for (size_t i = 1; i < call.items.size(); ++i) {
    arguments.positional.push_back(evaluate(*call.items[i], scope));
  }
  if (call.star != nullptr) {
    for (Value& value : iterate(*this, evaluate(*call.star, scope))) {
      arguments.positional.push_back(std::move(value));
    }
  }
  for (const auto& [name, value] : call.keywords)
    arguments.keyword.emplace_back(name, evaluate(*value, scope));
  if (call.double_star != nullptr) {
    const Value more = evaluate(*call.double_star, scope);
    if (!more.is(Value::Kind::dict)) throw Error("argument after ** must be a mapping");
    spend(more.as_dict().size());
    for (const auto& [name, value] : more.as_dict().entries()) {
      arguments.keyword.emplace_back(to_text(name), value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expr& expr, const ScopePointer& scope) {
  const Value callee = evaluate(*expr.items[0], scope);
  return call(callee, evaluate_arguments(expr, scope));
}

Value Interpreter::evaluate_filter(const Expr& expr, const Value& value, const ScopePointer& scope) {
  return filter(expr.text, value, evaluate_arguments(expr, scope));
}

Value Interpreter::filter_chain(const Expr* chain, const Value& value, const ScopePointer& scope) {
  if (chain == nullptr) return value;
  const Level level(*this, depth_);
  return evaluate_filter(*chain, filter_chain(chain->items[0], value, scope), scope);
}

Value Interpreter::evaluate_concat(const Expr& expr, const ScopePointer& scope) {
  std::string text;
  for (const Expr* part : expr.items) {
    text += to_text(evaluate(*part, scope));
    check_text_size(text.size());
  }
  spend_bytes(text.size());
  return Value::string(std::move(text));
}

Value Interpreter::evaluate_comparison(const Expr& expr, const ScopePointer& scope) {
  Value left = evaluate(*expr.items[0], scope);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.items[i + 1], scope);
    if (!compare(*this, expr.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_conditional(const Expr& expr, const ScopePointer& scope) {
  if (evaluate(*expr.items[0], scope).truthy()) return evaluate(*expr.items[1], scope);
  if (expr.items[2] != nullptr) return evaluate(*expr.items[2], scope);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
}

}  // namespace sluice::text::jinja
