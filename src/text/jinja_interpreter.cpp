// Statements. Expressions are in jinja_evaluate.cpp.
#include "text/jinja_interpreter.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_level.h"
#include "text/jinja_objects.h"
#include "text/jinja_operators.h"

namespace sluice::text::jinja {
namespace {

// A unit is about one node evaluated, one element or sixteen bytes handled. In all that is a second or two,
// and some hundred megabytes.
constexpr size_t kMaxWork = 10'000'000;

}  // namespace

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, old] : variables) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(std::string(name), std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Interpreter::Interpreter(const Program& program, const Dict& context)
    : program_(program), root_(std::make_shared<Scope>()), work_left_(kMaxWork) {
  for (const auto& [name, value] : context.entries()) root_->variables.emplace_back(name.as_string(), value);
}

// Macros hold the scopes that hold them, and a namespace may hold itself.
Interpreter::~Interpreter() {
  for (const ScopePointer& scope : captured_) scope->variables.clear();
  for (const auto& space : spaces_) space->clear();
}

std::string Interpreter::run() {
  std::string out;
  execute(program_.body, root_, out);
  return out;
}

void Interpreter::spend(size_t units) {
  if (units > work_left_) throw Error("the template does more work than the limit allows");
  work_left_ -= units;
}

void Interpreter::adopt(std::shared_ptr<Namespace> space) { spaces_.push_back(std::move(space)); }

void Interpreter::capture_scope(const ScopePointer& scope) {
  if (captured_.empty() || captured_.back() != scope) captured_.push_back(scope);
}

void Interpreter::emit(std::string& out, std::string_view text) {
  check_text_size(out.size() + text.size());
  out += text;
}

std::string Interpreter::capture(const Block& block, const ScopePointer& scope) {
  std::string out;
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  execute(block, inner, out);
  spend_bytes(out.size());
  return out;
}

Interpreter::Flow Interpreter::execute(const Block& block, const ScopePointer& scope, std::string& out) {
  for (const Statement* statement : block) {
    if (const Flow flow = execute(*statement, scope, out); flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, const ScopePointer& scope,
                                       std::string& out) {
  using Kind = Statement::Kind;
  const Level level(*this, depth_);
  line_ = statement.line;
  spend(1);
  switch (statement.kind) {
    case Kind::data:
      emit(out, statement.text);
      break;
    case Kind::output:
      emit(out, to_text(evaluate(*statement.value, scope)));
      break;
    case Kind::if_else:
      return execute_if(statement, scope, out);
    case Kind::for_loop:
      execute_loop(statement, scope, evaluate(*statement.value, scope), 0, out);
      break;
    case Kind::set:
      execute_set(statement, scope);
      break;
    case Kind::set_block: {
      const Value text = Value::string(capture(statement.body, scope));
      assign(*statement.target, filter_chain(statement.value, text, scope), scope);
      break;
    }
    case Kind::macro:
      execute_macro(statement, scope);
      break;
    case Kind::call_block:
      execute_call_block(statement, scope, out);
      break;
    case Kind::filter_block: {
      const Value text = Value::string(capture(statement.body, scope));
      emit(out, to_text(filter_chain(statement.value, text, scope)));
      break;
    }
    case Kind::with:
      return execute_with(statement, scope, out);
    case Kind::scope: {
      auto inner = std::make_shared<Scope>();
      inner->parent = scope;
      return execute(statement.body, inner, out);
    }
    case Kind::break_loop:
      return Flow::break_loop;
    case Kind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_if(const Statement& statement, const ScopePointer& scope,
                                          std::string& out) {
  for (const Statement::Branch& branch : statement.branches) {
    if (evaluate(*branch.condition, scope).truthy()) return execute(branch.body, scope, out);
  }
  return execute(statement.otherwise, scope, out);
}

void Interpreter::execute_loop(const Statement& statement, const ScopePointer& scope, const Value& value,
                               int depth, std::string& out) {
  auto items = std::make_shared<std::vector<Value>>(iterate(*this, value));
  const auto new_scope = [&](const Value& item) {
    auto inner = std::make_shared<Scope>();
    inner->parent = scope;
    assign(*statement.target, item, inner);
    return inner;
  };
  if (statement.condition != nullptr) {
    std::erase_if(
        *items, [&](const Value& item) { return !evaluate(*statement.condition, new_scope(item)).truthy(); });
  }
  const auto loop = std::make_shared<Loop>(statement, scope, items, depth);
  const Value loop_value = Value::object(loop);
  for (size_t i = 0; i < items->size(); ++i) {
    spend(1);
    loop->move_to(i);
    const ScopePointer inner = new_scope((*items)[i]);
    inner->set("loop", loop_value);
    if (execute(statement.body, inner, out) == Flow::break_loop) return;
  }
  if (items->empty() && !statement.otherwise.empty()) {
    auto inner = std::make_shared<Scope>();
    inner->parent = scope;
    execute(statement.otherwise, inner, out);
  }
}

void Interpreter::execute_set(const Statement& statement, const ScopePointer& scope) {
  assign(*statement.target, evaluate(*statement.value, scope), scope);
}

void Interpreter::assign(const Expr& target, const Value& value, const ScopePointer& scope) {
  if (target.kind == Expr::Kind::name) {
    scope->set(target.text, value);
    return;
  }
  if (target.kind == Expr::Kind::space_item) {
    const Value* found = scope->find(target.text);
    auto* space = found != nullptr && found->is(Value::Kind::object)
                      ? dynamic_cast<Namespace*>(&found->as_object())
                      : nullptr;
    if (space == nullptr) throw Error("cannot assign attribute on non-namespace object");
    space->set(target.attribute_name, value);
    return;
  }
  const std::vector<Value> items = iterate(*this, value);
  if (items.size() != target.items.size()) {
    throw Error(fmt::format("cannot unpack {} values into {} names", items.size(), target.items.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.items[i], items[i], scope);
}

void Interpreter::execute_macro(const Statement& statement, const ScopePointer& scope) {
  capture_scope(scope);
  scope->set(statement.text, Value::object(std::make_shared<Macro>(statement, statement.text, scope)));
}

void Interpreter::execute_call_block(const Statement& statement, const ScopePointer& scope,
                                     std::string& out) {
  capture_scope(scope);
  const Expr& call_expression = *statement.value;
  Arguments arguments = evaluate_arguments(call_expression, scope);
  arguments.keyword.emplace_back("caller",
                                 Value::object(std::make_shared<Macro>(statement, "caller", scope)));
  const Value callee = evaluate(*call_expression.items[0], scope);
  emit(out, to_text(call(callee, arguments)));
}

Interpreter::Flow Interpreter::execute_with(const Statement& statement, const ScopePointer& scope,
                                            std::string& out) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  for (const auto& [target, value] : statement.bindings) assign(*target, evaluate(*value, scope), inner);
  return execute(statement.body, inner, out);
}

std::string Interpreter::render_loop(const Statement& loop, const ScopePointer& scope, const Value& items,
                                     int depth) {
  std::string out;
  execute_loop(loop, scope, items, depth, out);
  spend_bytes(out.size());
  return out;
}

std::string Interpreter::render_macro(const Statement& macro, std::string_view name,
                                      const ScopePointer& scope, const Arguments& arguments) {
  auto inner = std::make_shared<Scope>();
  inner->parent = scope;
  const auto& parameters = macro.parameters;
  std::vector<std::pair<std::string, Value>> rest = arguments.keyword;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& parameter = parameters[i].name;
    const auto named = std::find_if(rest.begin(), rest.end(),
                                    [&](const auto& argument) { return argument.first == parameter; });
    if (i < arguments.positional.size()) {
      if (named != rest.end()) {
        throw Error(fmt::format("macro '{}' got two values for '{}'", name, parameter));
      }
      inner->set(parameter, arguments.positional[i]);
    } else if (named != rest.end()) {
      inner->set(parameter, named->second);
      rest.erase(named);
    } else if (parameters[i].otherwise != nullptr) {
      inner->set(parameter, evaluate(*parameters[i].otherwise, inner));
    } else {
      inner->set(parameter, Value::undefined(fmt::format("parameter '{}' was not provided", parameter)));
    }
  }
  if (arguments.positional.size() > parameters.size() && !macro.takes_more_positional) {
    throw Error(fmt::format("macro '{}' takes not more than {} argument(s)", name, parameters.size()));
  }
  if (macro.takes_more_positional) {
    const auto first = arguments.positional.begin() +
                       static_cast<std::ptrdiff_t>(std::min(parameters.size(), arguments.positional.size()));
    inner->set("varargs", Value::tuple({first, arguments.positional.end()}));
  }
  Dict more;
  for (auto& [keyword, value] : rest) {
    if (keyword == "caller") {
      inner->set("caller", value);
    } else if (macro.takes_more_keywords) {
      more.set(keyword, value);
    } else {
      throw Error(fmt::format("macro '{}' takes no keyword argument '{}'", name, keyword));
    }
  }
  if (macro.takes_more_keywords) inner->set("kwargs", Value::of(std::move(more)));
  return capture(macro.body, inner);
}

}  // namespace sluice::text::jinja
