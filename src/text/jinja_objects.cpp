#include "text/jinja_objects.h"

#include "text/jinja_operators.h"

namespace sluice::text::jinja {

Value make_function(std::string name, Function::Body body) {
  return Value::object(std::make_shared<Function>(std::move(name), std::move(body)));
}

std::optional<Value> Namespace::attribute(Interpreter&, std::string_view name) {
  const Value* found = values_.find(name);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

std::optional<Value> Macro::attribute(Interpreter&, std::string_view name) {
  if (name == "name") return Value::string(name_);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const Parameter& parameter : statement_.parameters) names.push_back(Value::string(parameter.name));
  return Value::tuple(std::move(names));
}

Value Macro::call(Interpreter& interpreter, const Arguments& arguments) {
  return Value::string(interpreter.render_macro(statement_, name_, scope_, arguments));
}

Value Loop::neighbour(bool exists, size_t index, const char* message) const {
  return exists ? (*items_)[index] : Value::undefined(message);
}

bool Loop::changed(Interpreter& interpreter, const std::vector<Value>& values) {
  Value now = Value::tuple(values);
  if (last_changed_ && equal(interpreter, *last_changed_, now)) return false;
  last_changed_ = std::move(now);
  return true;
}

std::optional<Value> Loop::attribute(Interpreter&, std::string_view name) {
  const size_t length = items_->size();
  const auto integer = [](size_t value) { return Value::integer(static_cast<int64_t>(value)); };
  if (name == "index") return integer(index_ + 1);
  if (name == "index0") return integer(index_);
  if (name == "revindex") return integer(length - index_);
  if (name == "revindex0") return integer(length - index_ - 1);
  if (name == "first") return Value::boolean(index_ == 0);
  if (name == "last") return Value::boolean(index_ + 1 == length);
  if (name == "length") return integer(length);
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem") return neighbour(index_ > 0, index_ - 1, "there is no previous item");
  if (name == "nextitem") return neighbour(index_ + 1 < length, index_ + 1, "there is no next item");
  if (name == "cycle") {
    return make_function("cycle", [self = shared_from_this()](Interpreter&, const Arguments& arguments) {
      if (arguments.positional.empty()) throw Error("no items for cycling given");
      return arguments.positional[self->index_ % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    return make_function("changed", [self = shared_from_this()](Interpreter& in, const Arguments& arguments) {
      return Value::boolean(self->changed(in, arguments.positional));
    });
  }
  return std::nullopt;
}

Value Loop::call(Interpreter& interpreter, const Arguments& arguments) {
  if (!statement_.recursive) {
    throw Error("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (arguments.positional.size() != 1) throw Error("loop() takes one argument");
  return Value::string(interpreter.render_loop(statement_, scope_, arguments.positional[0], depth_ + 1));
}

}  // namespace sluice::text::jinja
