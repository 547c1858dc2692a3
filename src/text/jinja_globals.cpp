// Global functions: Jinja's own and the two that transformers adds.
#include <fmt/core.h>

#include <ctime>
#include <unordered_map>

#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_objects.h"
#include "text/jinja_operators.h"

namespace sluice::text::jinja {
namespace {

Value range(Interpreter& interpreter, const Arguments& arguments) {
  constexpr int64_t kMaxRange = 100'000;  // as in Jinja's sandbox
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  for (size_t i = 0; i < 3; ++i) {
    if (bound.has(i) && !bound[i].is_integral()) {
      throw Error("'" + bound[i].type_name() + "' object cannot be interpreted as an integer");
    }
  }
  const bool only_stop = !bound.has(1);
  const int64_t start = only_stop ? 0 : bound.integer(0, 0);
  const int64_t stop = only_stop ? bound.integer(0, 0) : bound.integer(1, 0);
  const int64_t step = bound.integer(2, 1);
  if (step == 0) throw Error("range() arg 3 must not be zero");
  List list;
  list.kind = ListKind::range;
  list.label = step == 1 ? fmt::format("range({}, {})", start, stop)
                         : fmt::format("range({}, {}, {})", start, stop, step);
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (static_cast<int64_t>(list.items.size()) == kMaxRange) {
      throw Error(
          fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange));
    }
    list.items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  interpreter.spend(list.items.size());
  return Value::of(std::move(list));
}

// dict(mapping or pairs, name=value, ...)
Dict make_dict(Interpreter& interpreter, const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) throw Error("dict expected at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Value::Kind::dict)) {
      interpreter.spend(source.as_dict().size());
      dict = source.as_dict();
    } else {
      for (const Value& pair : iterate(interpreter, source)) {
        const std::vector<Value> parts = iterate(interpreter, pair);
        if (parts.size() != 2) throw Error("dict() takes pairs of two");
        dict.set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.keyword) dict.set(name, value);
  return dict;
}

Value dict(Interpreter& interpreter, const Arguments& arguments) {
  return Value::of(make_dict(interpreter, arguments));
}

Value make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  auto space = std::make_shared<Namespace>();
  const Dict values = make_dict(interpreter, arguments);
  for (const auto& [name, value] : values.entries()) space->set(to_text(name), value);
  interpreter.adopt(space);
  interpreter.spend(16);
  return Value::object(space);
}

Value raise_exception(Interpreter&, const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  throw Error(to_text(bound[0]), true);
}

// The local time by strftime's format.
Value strftime_now(Interpreter&, const Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  const std::string format = bound.text(0, "");
  if (format.empty()) return Value::string("");
  if (format.size() > 1000) throw Error("strftime_now(): a format of more than 1000 bytes");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::string text(64 * format.size() + 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  return Value::string(std::move(text));
}

// joiner(separator): empty the first time it is called, then the separator.
Value joiner(Interpreter&, const Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  const Value separator = bound.value(0, Value::string(", "));
  return make_function("joiner", [separator, used = false](Interpreter&, const Arguments&) mutable {
    return std::exchange(used, true) ? separator : Value::string("");
  });
}

class Cycler final : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}

  std::string type_name() const override { return "Cycler"; }

  std::optional<Value> attribute(Interpreter&, std::string_view name) override {
    if (name == "current") return items_[at_];
    if (name == "next") {
      return make_function("next", [self = shared_from_this()](Interpreter&, const Arguments&) {
        const Value now = self->items_[self->at_];
        self->at_ = (self->at_ + 1) % self->items_.size();
        return now;
      });
    }
    if (name == "reset") {
      return make_function("reset", [self = shared_from_this()](Interpreter&, const Arguments&) {
        self->at_ = 0;
        return Value::none();
      });
    }
    return std::nullopt;
  }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
};

Value cycler(Interpreter&, const Arguments& arguments) {
  if (arguments.positional.empty()) throw Error("at least one item has to be provided");
  return Value::object(std::make_shared<Cycler>(arguments.positional));
}

using Global = Value (*)(Interpreter&, const Arguments&);

}  // namespace

std::optional<Value> find_global(std::string_view name) {
  static const std::unordered_map<std::string_view, Global> table = {
      {"cycler", cycler},
      {"dict", dict},
      {"joiner", joiner},
      {"namespace", make_namespace},
      {"raise_exception", raise_exception},
      {"range", range},
      {"strftime_now", strftime_now},
  };
  const auto found = table.find(name);
  if (found == table.end()) return std::nullopt;
  return make_function(std::string(name), found->second);
}

}  // namespace sluice::text::jinja
