// A parsed template. All nodes belong to their Program and point at each other; they never change once
// parsed, so many threads may render one Program.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace sluice::text::jinja {

enum class Operator {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

struct Expr {
  enum class Kind {
    constant,
    name,         // text
    list,         // items
    tuple,        // items
    dict,         // items: key, value, key, value, ...
    attribute,    // items[0].text
    item,         // items[0][items[1]]
    slice,        // items: start, stop, step, each may be null; only as items[1] of item
    call,         // items[0](items[1...], keywords, star, double_star)
    filter,       // items[0] | text(items[1...], ...); items[0] is null in a filter block
    test,         // items[0] is text(items[1...], ...)
    logical_not,  // items[0]
    negative,     // items[0]
    positive,     // items[0]
    binary,       // items[0] operators[0] items[1]
    concat,       // items joined as text
    compare,      // items[0] operators[0] items[1] operators[1] items[2] ...
    logical_and,  // items[0], items[1]
    logical_or,   // items[0], items[1]
    conditional,  // items: condition, value, otherwise (may be null)
    space_item,   // text.attribute_name, only as the target of a set
  };
  Kind kind = Kind::constant;
  int line = 0;
  std::string text;
  std::string attribute_name;
  Value constant;
  std::vector<const Expr*> items;
  std::vector<Operator> operators;
  std::vector<std::pair<std::string, const Expr*>> keywords;
  const Expr* star = nullptr;
  const Expr* double_star = nullptr;
};

struct Statement;
using Block = std::vector<const Statement*>;

struct Parameter {
  std::string name;
  const Expr* otherwise;  // null without a default
};

struct Statement {
  enum class Kind {
    data,          // text
    output,        // value
    if_else,       // branches, otherwise
    for_loop,      // target in value if condition: body; otherwise
    set,           // target = value
    set_block,     // target = body through value (a filter, may be null)
    macro,         // text(parameters): body
    call_block,    // call value with caller(parameters): body
    filter_block,  // body through value
    with,          // bindings: body
    scope,         // body in a scope of its own
    break_loop,
    continue_loop,
  };
  struct Branch {
    const Expr* condition;
    Block body;
  };
  Kind kind = Kind::data;
  int line = 0;
  std::string text;
  const Expr* target = nullptr;
  const Expr* value = nullptr;
  const Expr* condition = nullptr;
  bool recursive = false;
  bool takes_more_positional = false;  // the macro's body reads varargs
  bool takes_more_keywords = false;    // ... or kwargs
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  std::vector<std::pair<const Expr*, const Expr*>> bindings;
  Block body;
  Block otherwise;
};

struct Program {
  std::deque<Expr> expressions;
  std::deque<Statement> statements;
  Block body;
};

}  // namespace sluice::text::jinja
