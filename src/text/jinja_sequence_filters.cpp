// Filters on sequences and mappings.
#include <algorithm>
#include <unordered_map>

#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/python_text.h"

namespace sluice::text::jinja {
namespace {

using Kind = Value::Kind;

Value generator(std::vector<Value> items) {
  List list;
  list.kind = ListKind::generator;
  list.items = std::move(items);
  return Value::of(std::move(list));
}

Value lower_case(const Value& value) {
  return value.is_string() ? Value::string(python::lower(value.as_string())) : value;
}

// What an element is sorted or grouped by.
Value sort_key(Interpreter& interpreter, const Value& item, const Value& path, bool case_sensitive,
               const Value* otherwise = nullptr) {
  Value key = attribute_path(interpreter, item, path, otherwise);
  return case_sensitive ? key : lower_case(key);
}

struct Keyed {
  Value key;
  Value item;
};

// Stable; reversed as Python does it, equal elements staying in their order.
void sort_keyed(Interpreter& interpreter, std::vector<Keyed>& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? order(interpreter, b.key, a.key, "<") < 0 : order(interpreter, a.key, b.key, "<") < 0;
  });
}

Value length_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Bound bound("length", arguments, {});
  const auto size = length(value);
  if (!size) throw Error("object of type '" + value.type_name() + "' has no len()");
  return Value::integer(*size);
}

Value first(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("first", arguments, {});
  if (value.is(Kind::list)) {
    const List& list = value.as_list();
    if (list.taken == list.items.size()) return Value::undefined("No first item, sequence was empty.");
    return list.items[list.kind == ListKind::generator ? list.taken++ : 0];
  }
  if (value.is_string()) {
    const auto found = subscript(interpreter, value, Value::integer(0));
    return found ? *found : Value::undefined("No first item, sequence was empty.");
  }
  const std::vector<Value> items = iterate(interpreter, value);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("last", arguments, {});
  if (value.is(Kind::list) && value.as_list().kind == ListKind::generator) {
    throw Error("'generator' object is not reversible");
  }
  if (value.is(Kind::list)) {
    const auto& items = value.as_list().items;
    return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
  }
  const std::vector<Value> items = iterate(interpreter, value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value join(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string separator = bound.has(0) ? to_text(bound[0]) : "";
  std::string out;
  bool first = true;
  for (const Value& item : iterate(interpreter, value)) {
    const std::string text =
        to_text(attribute_path(interpreter, item, bound.value(1, Value::none()), nullptr));
    interpreter.spend_bytes(text.size() + separator.size());
    if (!std::exchange(first, false)) out += separator;
    out += text;
  }
  return Value::string(std::move(out));
}

Value list_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("list", arguments, {});
  return Value::list(iterate(interpreter, value));
}

Value reverse(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("reverse", arguments, {});
  std::vector<Value> items = iterate(interpreter, value);
  std::reverse(items.begin(), items.end());
  if (!value.is_string()) return generator(std::move(items));
  std::string text;
  for (const Value& character : items) text += character.as_string();
  return Value::string(std::move(text));
}

Value items_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("items", arguments, {});
  if (value.is_undefined()) return generator({});
  if (!value.is(Kind::dict)) throw Error("Can only get item pairs from a mapping.");
  interpreter.spend(value.as_dict().size());
  std::vector<Value> pairs;
  for (const auto& [key, item] : value.as_dict().entries()) pairs.push_back(Value::tuple({key, item}));
  return generator(std::move(pairs));
}

Value dict_sort(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value") throw Error("You can only sort by either \"key\" or \"value\"");
  if (!value.is(Kind::dict)) throw Error("'" + value.type_name() + "' has no items to sort");
  std::vector<Keyed> items;
  for (const auto& [key, item] : value.as_dict().entries()) {
    const Value& by_value = by == "key" ? key : item;
    items.push_back({bound.boolean(0, false) ? by_value : lower_case(by_value), Value::tuple({key, item})});
  }
  sort_keyed(interpreter, items, bound.boolean(2, false));
  std::vector<Value> sorted;
  for (Keyed& entry : items) sorted.push_back(std::move(entry.item));
  return Value::list(std::move(sorted));
}

// The key of sort: a list when several attributes are named, "age,name".
Value multi_key(Interpreter& interpreter, const Value& item, const Value& path, bool case_sensitive) {
  std::vector<Value> keys;
  if (path.is_string()) {
    for (std::string& part : python::split(path.as_string(), ",", -1, false)) {
      keys.push_back(sort_key(interpreter, item, Value::string(std::move(part)), case_sensitive));
    }
  } else {
    keys.push_back(sort_key(interpreter, item, path, case_sensitive));
  }
  return Value::list(std::move(keys));
}

Value sort(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> items;
  for (const Value& item : iterate(interpreter, value)) {
    items.push_back(
        {multi_key(interpreter, item, bound.value(2, Value::none()), bound.boolean(1, false)), item});
  }
  sort_keyed(interpreter, items, bound.boolean(0, false));
  std::vector<Value> sorted;
  for (Keyed& entry : items) sorted.push_back(std::move(entry.item));
  return Value::list(std::move(sorted));
}

Value unique(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  Dict seen;
  std::vector<Value> kept;
  for (const Value& item : iterate(interpreter, value)) {
    const Value key = sort_key(interpreter, item, bound.value(1, Value::none()), bound.boolean(0, false));
    if (seen.find(key) != nullptr) continue;
    seen.set(key, Value::none());
    kept.push_back(item);
  }
  return generator(std::move(kept));
}

template <bool largest>
Value extreme(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  std::optional<Keyed> best;
  for (const Value& item : iterate(interpreter, value)) {
    Value key = sort_key(interpreter, item, bound.value(1, Value::none()), bound.boolean(0, false));
    const bool better = !best || (largest ? order(interpreter, key, best->key, ">") > 0
                                          : order(interpreter, key, best->key, "<") < 0);
    if (better) best = Keyed{std::move(key), item};
  }
  return best ? best->item : Value::undefined("No aggregated item, sequence was empty.");
}

Value sum(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  Value total = bound.value(1, Value::integer(0));
  for (const Value& item : iterate(interpreter, value)) {
    total = arithmetic(interpreter, Operator::add, total,
                       attribute_path(interpreter, item, bound.value(0, Value::none()), nullptr));
  }
  return total;
}

Value batch(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = bound.integer(0, 1);
  if (size < 1 || size > 1'000'000) throw Error("batch(): linecount must be from 1 to 1000000");
  std::vector<Value> lines;
  std::vector<Value> line;
  for (const Value& item : iterate(interpreter, value)) {
    if (static_cast<int64_t>(line.size()) == size) lines.push_back(Value::list(std::exchange(line, {})));
    line.push_back(item);
  }
  if (!line.empty()) {
    if (bound.has(1) && !bound[1].is_none()) {
      interpreter.spend(static_cast<size_t>(size));
      line.resize(static_cast<size_t>(size), bound[1]);
    }
    lines.push_back(Value::list(std::move(line)));
  }
  return generator(std::move(lines));
}

Value slice_filter(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  const int64_t slices = bound.integer(0, 1);
  if (slices < 1 || slices > 1'000'000) throw Error("slice(): slices must be from 1 to 1000000");
  const std::vector<Value> items = iterate(interpreter, value);
  const auto count = static_cast<size_t>(slices);
  interpreter.spend(count);
  const size_t each = items.size() / count;
  const size_t longer = items.size() % count;
  std::vector<Value> columns;
  auto at = items.begin();
  for (size_t i = 0; i < count; ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(each + (i < longer ? 1 : 0));
    std::vector<Value> column(at, end);
    if (bound.has(1) && !bound[1].is_none() && i >= longer) column.push_back(bound[1]);
    columns.push_back(Value::list(std::move(column)));
    at = end;
  }
  return generator(std::move(columns));
}

Value group_by(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const bool with_default = bound.has(1) && !bound[1].is_none();
  const Value* otherwise = with_default ? &bound[1] : nullptr;
  std::vector<Keyed> items;
  for (const Value& item : iterate(interpreter, value)) {
    items.push_back({sort_key(interpreter, item, bound[0], bound.boolean(2, false), otherwise), item});
  }
  sort_keyed(interpreter, items, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    std::vector<Value> members;
    size_t end = begin;
    while (end < items.size() && equal(interpreter, items[end].key, items[begin].key)) {
      members.push_back(items[end++].item);
    }
    List group;
    group.kind = ListKind::group;
    group.items = {attribute_path(interpreter, members.front(), bound[0], otherwise),
                   Value::list(std::move(members))};
    groups.push_back(Value::of(std::move(group)));
    begin = end;
  }
  return Value::list(std::move(groups));
}

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> table = {
      {"batch", batch},          {"count", length_filter}, {"dictsort", dict_sort}, {"first", first},
      {"groupby", group_by},     {"items", items_filter},  {"join", join},          {"last", last},
      {"length", length_filter}, {"list", list_filter},    {"max", extreme<true>},  {"min", extreme<false>},
      {"reverse", reverse},      {"slice", slice_filter},  {"sort", sort},          {"sum", sum},
      {"unique", unique},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace sluice::text::jinja
