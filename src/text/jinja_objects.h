// The objects that templates meet: functions and bound methods, namespaces, macros, loops.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_interpreter.h"

namespace sluice::text::jinja {

class Function final : public Object {
 public:
  using Body = std::function<Value(Interpreter&, const Arguments&)>;
  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}

  std::string type_name() const override { return "function"; }
  std::string repr() const override { return "<function " + name_ + ">"; }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return body_(interpreter, arguments);
  }

 private:
  std::string name_;
  Body body_;
};

Value make_function(std::string name, Function::Body body);

class Namespace final : public Object {
 public:
  std::string type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override;
  void set(std::string_view name, Value value) { values_.set(name, std::move(value)); }
  void clear() { values_ = {}; }

 private:
  Dict values_;
};

// A macro, or the caller() of a call block.
class Macro final : public Object {
 public:
  Macro(const Statement& statement, std::string name, ScopePointer scope)
      : statement_(statement), name_(std::move(name)), scope_(std::move(scope)) {}

  std::string type_name() const override { return "Macro"; }
  std::string repr() const override { return "<Macro '" + name_ + "'>"; }
  bool callable() const override { return true; }
  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override;
  Value call(Interpreter& interpreter, const Arguments& arguments) override;

 private:
  const Statement& statement_;
  std::string name_;
  ScopePointer scope_;
};

// The variable `loop`.
class Loop final : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(const Statement& statement, ScopePointer scope, std::shared_ptr<const std::vector<Value>> items,
       int depth)
      : statement_(statement), scope_(std::move(scope)), items_(std::move(items)), depth_(depth) {}

  void move_to(size_t index) { index_ = index; }

  std::string type_name() const override { return "LoopContext"; }
  bool callable() const override { return true; }
  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override;
  Value call(Interpreter& interpreter, const Arguments& arguments) override;

 private:
  Value neighbour(bool exists, size_t index, const char* message) const;
  bool changed(Interpreter& interpreter, const std::vector<Value>& values);

  const Statement& statement_;
  ScopePointer scope_;
  std::shared_ptr<const std::vector<Value>> items_;
  int depth_;
  size_t index_ = 0;
  std::optional<Value> last_changed_;
};

}  // namespace sluice::text::jinja
