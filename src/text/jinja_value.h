// Values of the template language: Python's, as far as templates can see. All are immutable but generators
// (which are used up) and objects; strings are valid UTF-8. One render makes and drops them on one thread;
// constants of a parsed template are shared and never change.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sluice::text::jinja {

class Interpreter;
class Value;
struct List;
class Dict;
class Object;

// A template that is wrong, or that fails on its input. Never leaves ChatTemplate. `raised` marks what the
// template itself reports with raise_exception.
struct Error : std::runtime_error {
  explicit Error(const std::string& message, bool raised_by_template = false)
      : std::runtime_error(message), raised(raised_by_template) {}
  bool raised;
  int line = 0;
};

// Lists inside lists deeper than this are refused, so that no walk over a value exhausts the stack.
constexpr int kMaxValueDepth = 128;

class Value {
 public:
  enum class Kind : uint8_t { undefined, none, boolean, integer, number, string, list, dict, object };

  Value() = default;  // undefined
  // The message is what using the value says: "'x' is undefined".
  static Value undefined(std::string message);
  static Value none();
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value number(double value);
  static Value string(std::string value);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value of(List list);
  static Value of(Dict dict);
  static Value object(std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_string() const { return kind_ == Kind::string; }
  // Python's bool is an int.
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_numeric() const { return is_integral() || kind_ == Kind::number; }

  // Each only for its kind.
  bool as_boolean() const { return bits_.boolean; }
  int64_t as_integer() const { return kind_ == Kind::boolean ? int64_t{bits_.boolean} : bits_.integer; }
  double as_number() const {
    return kind_ == Kind::number ? bits_.number : static_cast<double>(as_integer());
  }
  const std::string& as_string() const { return *static_cast<const std::string*>(pointer_.get()); }
  const List& as_list() const { return *static_cast<const List*>(pointer_.get()); }
  const Dict& as_dict() const { return *static_cast<const Dict*>(pointer_.get()); }
  Object& as_object() const { return *static_cast<Object*>(pointer_.get()); }
  const void* identity() const { return pointer_.get(); }
  std::string undefined_message() const;

  bool truthy() const;
  int depth() const;
  // Python's name of the type: 'str', 'int', 'list', ...
  std::string type_name() const;

 private:
  Kind kind_ = Kind::undefined;
  union {
    bool boolean;
    int64_t integer;
    double number;
  } bits_ = {};
  std::shared_ptr<void> pointer_;
};

enum class ListKind : uint8_t { list, tuple, group, range, view, generator };

// `label` names a view ("dict_keys") or is a range's text. A generator is read once: `taken` items are gone.
struct List {
  ListKind kind = ListKind::list;
  std::vector<Value> items;
  std::string label;
  int depth = 1;
  mutable size_t taken = 0;
};

// Insertion order, as in Python.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  // null when absent. An unhashable key is an Error.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);
  void set(std::string_view key, Value value) { set(Value::string(std::string(key)), std::move(value)); }
  int depth() const { return depth_; }

 private:
  const Value* find_hashed(const std::string& hashed) const;

  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;  // by hash_key()
  int depth_ = 1;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

// Functions, bound methods, macros, namespaces, loops.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::string repr() const { return "<" + type_name() + ">"; }
  // Nothing when there is no such attribute.
  virtual std::optional<Value> attribute(Interpreter& interpreter, std::string_view name);
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter& interpreter, const Arguments& arguments);
};

}  // namespace sluice::text::jinja
