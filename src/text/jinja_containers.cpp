// Operators of containers: in, len(), iteration, indices and slices.
#include <fmt/core.h>

#include <algorithm>

#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/python_text.h"
#include "text/unicode.h"

namespace sluice::text::jinja {
namespace {

using Kind = Value::Kind;

void refuse_undefined(const Value& value) {
  if (value.is_undefined()) throw Error(value.undefined_message());
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

}  // namespace

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
