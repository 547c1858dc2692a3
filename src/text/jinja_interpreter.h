// Renders a Program: one Interpreter a render. Work, output and depth are bounded, so a hostile template or
// input ends in an Error.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace sluice::text::jinja {

// Variables of one frame; what is not found here is looked for outside.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;
};
using ScopePointer = std::shared_ptr<Scope>;

class Interpreter {
 public:
  Interpreter(const Program& program, const Dict& context);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string run();
  // Where in the template it stands.
  int line() const { return line_; }

  // What the built-in functions use.
  void spend(size_t units);
  void spend_bytes(size_t bytes) { spend(1 + bytes / 16); }
  Value call(const Value& callee, const Arguments& arguments);
  Value filter(const std::string& name, const Value& value, const Arguments& arguments);
  bool test(const std::string& name, const Value& value, const Arguments& arguments);
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  // An object that may come to refer to itself; it is emptied when the render ends.
  void adopt(std::shared_ptr<class Namespace> space);

  // What macros and loops use.
  std::string render_macro(const Statement& macro, std::string_view name, const ScopePointer& scope,
                           const Arguments& arguments);
  std::string render_loop(const Statement& loop, const ScopePointer& scope, const Value& items, int depth);

 private:
  enum class Flow { normal, break_loop, continue_loop };
  class Level;

  Flow execute(const Block& block, const ScopePointer& scope, std::string& out);
  Flow execute(const Statement& statement, const ScopePointer& scope, std::string& out);
  Flow execute_if(const Statement& statement, const ScopePointer& scope, std::string& out);
  void execute_loop(const Statement& statement, const ScopePointer& scope, const Value& items, int depth,
                    std::string& out);
  void execute_set(const Statement& statement, const ScopePointer& scope);
  void execute_macro(const Statement& statement, const ScopePointer& scope);
  void execute_call_block(const Statement& statement, const ScopePointer& scope, std::string& out);
  Flow execute_with(const Statement& statement, const ScopePointer& scope, std::string& out);
  std::string capture(const Block& block, const ScopePointer& scope);
  void emit(std::string& out, std::string_view text);
  void assign(const Expr& target, const Value& value, const ScopePointer& scope);
  void capture_scope(const ScopePointer& scope);

  Value evaluate(const Expr& expr, const ScopePointer& scope);
  Value evaluate_name(const Expr& expr, const ScopePointer& scope);
  Value evaluate_display(const Expr& expr, const ScopePointer& scope);
  Value evaluate_item(const Expr& expr, const ScopePointer& scope);
  Value evaluate_call(const Expr& expr, const ScopePointer& scope);
  Value evaluate_concat(const Expr& expr, const ScopePointer& scope);
  Value evaluate_comparison(const Expr& expr, const ScopePointer& scope);
  Value evaluate_conditional(const Expr& expr, const ScopePointer& scope);
  Value evaluate_filter(const Expr& expr, const Value& value, const ScopePointer& scope);
  // Through a chain of filters whose innermost value is `value`.
  Value filter_chain(const Expr* filter, const Value& value, const ScopePointer& scope);
  Arguments evaluate_arguments(const Expr& call, const ScopePointer& scope);

  const Program& program_;
  ScopePointer root_;
  size_t work_left_;
  int depth_ = 0;
  int line_ = 0;
  std::vector<ScopePointer> captured_;  // by macros, which their scopes hold in turn
  std::vector<std::shared_ptr<class Namespace>> spaces_;
};

}  // namespace sluice::text::jinja
