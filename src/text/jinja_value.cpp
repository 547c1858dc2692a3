#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_format.h"

namespace sluice::text::jinja {
namespace {

constexpr size_t kMaxKeyBytes = 1 << 20;

int checked_depth(int children) {
  if (children >= kMaxValueDepth) {
    throw Error("values are nested more than " + std::to_string(kMaxValueDepth) + " deep");
  }
  return children + 1;
}

// Equal keys have equal strings: 1, 1.0 and True are one key.
std::string hash_key(const Value& key) {
  using Kind = Value::Kind;
  switch (key.kind()) {
    case Kind::string:
      return "s" + key.as_string();
    case Kind::boolean:
    case Kind::integer:
      return "n" + std::to_string(key.as_integer());
    case Kind::number: {
      const double number = key.as_number();
      if (std::trunc(number) == number && std::abs(number) < 9e15) {
        return "n" + std::to_string(static_cast<int64_t>(number));
      }
      return "n" + repr_number(number);
    }
    case Kind::none:
      return "N";
    case Kind::list:
      if (key.as_list().kind == ListKind::tuple) {
        std::string text = "t";
        for (const Value& item : key.as_list().items) {
          const std::string part = hash_key(item);
          text += std::to_string(part.size()) + ":" + part;
          if (text.size() > kMaxKeyBytes) throw Error("a dict key of more than 1 MiB; that is the limit");
        }
        return text;
      }
      break;
    default:
      break;
  }
  throw Error("unhashable type: '" + key.type_name() + "'");
}

}  // namespace

Value Value::undefined(std::string message) {
  Value value;
  value.pointer_ = std::make_shared<std::string>(std::move(message));
  return value;
}

Value Value::none() {
  Value value;
  value.kind_ = Kind::none;
  return value;
}

Value Value::boolean(bool boolean) {
  Value value;
  value.kind_ = Kind::boolean;
  value.bits_.boolean = boolean;
  return value;
}

Value Value::integer(int64_t integer) {
  Value value;
  value.kind_ = Kind::integer;
  value.bits_.integer = integer;
  return value;
}

Value Value::number(double number) {
  Value value;
  value.kind_ = Kind::number;
  value.bits_.number = number;
  return value;
}

Value Value::string(std::string string) {
  Value value;
  value.kind_ = Kind::string;
  value.pointer_ = std::make_shared<std::string>(std::move(string));
  return value;
}

Value Value::list(std::vector<Value> items) {
  List list;
  list.items = std::move(items);
  return of(std::move(list));
}

Value Value::tuple(std::vector<Value> items) {
  List list;
  list.kind = ListKind::tuple;
  list.items = std::move(items);
  return of(std::move(list));
}

Value Value::of(List list) {
  int deepest = 0;
  for (const Value& item : list.items) deepest = std::max(deepest, item.depth());
  list.depth = checked_depth(deepest);
  Value value;
  value.kind_ = Kind::list;
  value.pointer_ = std::make_shared<List>(std::move(list));
  return value;
}

Value Value::of(Dict dict) {
  Value value;
  value.kind_ = Kind::dict;
  value.pointer_ = std::make_shared<Dict>(std::move(dict));
  return value;
}

Value Value::object(std::shared_ptr<Object> object) {
  Value value;
  value.kind_ = Kind::object;
  value.pointer_ = std::move(object);
  return value;
}

std::string Value::undefined_message() const {
  return pointer_ == nullptr ? "the value is undefined" : *static_cast<const std::string*>(pointer_.get());
}

bool Value::truthy() const {
  switch (kind_) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return bits_.boolean;
    case Kind::integer:
      return bits_.integer != 0;
    case Kind::number:
      return bits_.number != 0;
    case Kind::string:
      return !as_string().empty();
    case Kind::list:
      return as_list().kind == ListKind::generator || !as_list().items.empty();
    case Kind::dict:
      return as_dict().size() > 0;
    case Kind::object:
      return true;
  }
  return false;
}

int Value::depth() const {
  if (kind_ == Kind::list) return as_list().depth;
  if (kind_ == Kind::dict) return as_dict().depth();
  return 0;
}

std::string Value::type_name() const {
  switch (kind_) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::number:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list:
      switch (as_list().kind) {
        case ListKind::list:
          return "list";
        case ListKind::tuple:
        case ListKind::group:
          return "tuple";
        case ListKind::range:
          return "range";
        case ListKind::view:
          return as_list().label;
        case ListKind::generator:
          return "generator";
      }
      return "list";
    case Kind::dict:
      return "dict";
    case Kind::object:
      return as_object().type_name();
  }
  return "object";
}

const Value* Dict::find_hashed(const std::string& hashed) const {
  const auto found = index_.find(hashed);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::find(const Value& key) const { return find_hashed(hash_key(key)); }

const Value* Dict::find(std::string_view key) const {
  constexpr size_t kFewEntries = 8;
  if (entries_.size() > kFewEntries) return find_hashed("s" + std::string(key));
  for (const auto& [name, value] : entries_) {
    if (name.is_string() && name.as_string() == key) return &value;
  }
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  depth_ = std::max(depth_, checked_depth(std::max(key.depth(), value.depth())));
  const auto [place, added] = index_.try_emplace(hash_key(key), entries_.size());
  if (added) {
    entries_.emplace_back(key, std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
}

std::optional<Value> Object::attribute(Interpreter&, std::string_view) { return std::nullopt; }

Value Object::call(Interpreter&, const Arguments&) {
  throw Error("'" + type_name() + "' object is not callable");
}

}  // namespace sluice::text::jinja
