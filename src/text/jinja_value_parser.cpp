// Names, literals, and what follows a value: attributes, indices, calls, filters, tests.
#include <fmt/core.h>

#include <charconv>
#include <system_error>
#include <utility>

#include "text/jinja_expression_parser.h"

namespace sluice::text::jinja {
namespace {

using Kind = Expr::Kind;
using TokenKind = Token::Kind;

bool is_constant_name(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

}  // namespace

const Expr* ExpressionParser::name_or_constant() {
  const bool constant = is_constant_name(current().text);
  Expr* node = make(constant ? Kind::constant : Kind::name, current().line);
  node->text = take().text;
  if (constant) {
    const char first = node->text[0];
    node->constant =
        first == 'n' || first == 'N' ? Value::none() : Value::boolean(first == 't' || first == 'T');
  }
  return node;
}

const Expr* ExpressionParser::integer() {
  const Token token = take();
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) digits.remove_prefix(2);
  }
  if (base == 10 && digits[0] == '0' && digits.find_first_not_of('0') != std::string_view::npos) {
    fail_at(token, fmt::format("'{}' is not a number: leading zeros", token.text));
  }
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value, base);
  if (read.ec != std::errc() || read.ptr != end) {
    fail_at(token, fmt::format("'{}' is not an integer of 64 bits", token.text));
  }
  Expr* node = make(Kind::constant, token.line);
  node->constant = Value::integer(value);
  return node;
}

const Expr* ExpressionParser::number() {
  const Token token = take();
  Expr* node = make(Kind::constant, token.line);
  double value = 0;
  std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
  node->constant = Value::number(value);
  return node;
}

const Expr* ExpressionParser::primary() {
  const Token token = current();
  if (token.kind == TokenKind::name) return name_or_constant();
  if (token.kind == TokenKind::string) {
    Expr* node = make(Kind::constant, token.line);
    std::string text;
    while (current().kind == TokenKind::string) text += take().text;
    node->constant = Value::string(std::move(text));
    return node;
  }
  if (token.kind == TokenKind::integer) return integer();
  if (token.kind == TokenKind::number) return number();
  if (skip_symbol("(")) {
    const Expr* inside = tuple(true, {}, true);
    expect_symbol(")");
    return inside;
  }
  if (is_symbol("[")) return list_display();
  if (is_symbol("{")) return dict_display();
  fail(fmt::format("unexpected {}", describe(token)));
}

const Expr* ExpressionParser::list_display() {
  Expr* node = make(Kind::list, take().line);
  while (!is_symbol("]")) {
    if (!node->items.empty()) expect_symbol(",");
    if (is_symbol("]")) break;
    node->items.push_back(expression());
  }
  expect_symbol("]");
  return node;
}

const Expr* ExpressionParser::dict_display() {
  Expr* node = make(Kind::dict, take().line);
  while (!is_symbol("}")) {
    if (!node->items.empty()) expect_symbol(",");
    if (is_symbol("}")) break;
    node->items.push_back(expression());
    expect_symbol(":");
    node->items.push_back(expression());
  }
  expect_symbol("}");
  return node;
}

const Expr* ExpressionParser::postfix(const Expr* value) {
  while (true) {
    if (is_symbol(".") || is_symbol("[")) {
      value = subscript(value);
    } else if (is_symbol("(")) {
      value = call(value);
    } else {
      return value;
    }
  }
}

const Expr* ExpressionParser::filters_and_tests(const Expr* value) {
  while (true) {
    if (is_symbol("|")) {
      value = filters(value);
    } else if (is_name("is")) {
      value = test(value);
    } else if (is_symbol("(")) {
      value = call(value);
    } else {
      return value;
    }
  }
}

const Expr* ExpressionParser::subscript(const Expr* value) {
  const Token opening = take();
  if (opening.text == ".") {
    const Token name = take();
    if (name.kind == TokenKind::name) {
      Expr* node = make(Kind::attribute, opening.line);
      node->text = name.text;
      node->items = {value};
      return node;
    }
    int64_t index = 0;
    if (name.kind != TokenKind::integer ||
        std::from_chars(name.text.data(), name.text.data() + name.text.size(), index).ec != std::errc()) {
      fail_at(name, fmt::format("expected a name or a number behind '.', found {}", describe(name)));
    }
    Expr* constant = make(Kind::constant, name.line);
    constant->constant = Value::integer(index);
    Expr* node = make(Kind::item, opening.line);
    node->items = {value, constant};
    return node;
  }
  std::vector<const Expr*> arguments;
  while (!is_symbol("]")) {
    if (!arguments.empty()) expect_symbol(",");
    arguments.push_back(subscribed());
  }
  expect_symbol("]");
  const Expr* argument = nullptr;
  if (arguments.size() == 1) {
    argument = arguments[0];
  } else {
    Expr* items = make(Kind::tuple, opening.line);
    items->items = std::move(arguments);
    argument = items;
  }
  Expr* node = make(Kind::item, opening.line);
  node->items = {value, argument};
  return node;
}

const Expr* ExpressionParser::subscribed() {
  const int line = current().line;
  const Expr* start = nullptr;
  if (!is_symbol(":")) {
    start = expression();
    if (!is_symbol(":")) return start;
  }
  take();
  const auto part = [this]() -> const Expr* {
    return is_symbol(":") || is_symbol("]") || is_symbol(",") ? nullptr : expression();
  };
  const Expr* stop = part();
  const Expr* step = skip_symbol(":") ? part() : nullptr;
  Expr* node = make(Kind::slice, line);
  node->items = {start, stop, step};
  return node;
}

const Expr* ExpressionParser::call(const Expr* callee) {
  Expr* node = make(Kind::call, current().line);
  node->items = {callee};
  call_arguments(*node);
  return node;
}

void ExpressionParser::call_arguments(Expr& call) {
  expect_symbol("(");
  bool first = true;
  while (!is_symbol(")")) {
    if (!std::exchange(first, false)) {
      expect_symbol(",");
      if (is_symbol(")")) break;
    }
    const bool after_double_star = call.double_star != nullptr;
    if (is_symbol("*") && call.star == nullptr && !after_double_star) {
      take();
      call.star = expression();
    } else if (is_symbol("**") && !after_double_star) {
      take();
      call.double_star = expression();
    } else if (current().kind == TokenKind::name && look_ahead().kind == TokenKind::symbol &&
               look_ahead().text == "=" && !after_double_star) {
      std::string name = take().text;
      take();
      call.keywords.emplace_back(std::move(name), expression());
    } else if (call.star == nullptr && !after_double_star && call.keywords.empty()) {
      call.items.push_back(expression());
    } else {
      fail("arguments are out of order: positional, named, *list, **dict");
    }
  }
  expect_symbol(")");
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect_identifier();
  while (skip_symbol(".")) name += "." + expect_identifier();
  return name;
}

const Expr* ExpressionParser::filters(const Expr* value, bool first) {
  while (first || is_symbol("|")) {
    if (!std::exchange(first, false)) take();
    Expr* node = make(Kind::filter, current().line);
    node->text = dotted_name();
    node->items = {value};
    if (is_symbol("(")) call_arguments(*node);
    value = node;
  }
  return value;
}

const Expr* ExpressionParser::test(const Expr* value) {
  const int line = take().line;
  const bool negated = skip_name("not");
  Expr* node = make(Kind::test, line);
  node->text = dotted_name();
  node->items = {value};
  const Token& next = current();
  if (is_symbol("(")) {
    call_arguments(*node);
  } else if ((next.kind == TokenKind::name && next.text != "else" && next.text != "or" &&
              next.text != "and") ||
             next.kind == TokenKind::string || next.kind == TokenKind::integer ||
             next.kind == TokenKind::number || is_symbol("[") || is_symbol("{")) {
    if (is_name("is")) fail("tests cannot be chained with 'is'");
    node->items.push_back(postfix(primary()));
  }
  if (!negated) return node;
  Expr* negation = make(Kind::logical_not, line);
  negation->items = {node};
  return negation;
}

const Expr* ExpressionParser::assignment_target(std::string_view end_name, bool space) {
  const int line = current().line;
  std::vector<const Expr*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_symbol(",");
    if (!items.empty() &&
        (is_name(end_name) || is_symbol("=") || is_symbol(")") || current().kind == TokenKind::block_end)) {
      break;
    }
    items.push_back(target_item(space));
    if (!is_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) return items[0];
  Expr* node = make(Kind::tuple, line);
  node->items = std::move(items);
  return node;
}

const Expr* ExpressionParser::target_item(bool space) {
  if (skip_symbol("(")) {
    const Nesting nesting(*this);
    const Expr* inside = assignment_target({}, space);
    expect_symbol(")");
    return inside;
  }
  const Token name = current();
  if (name.kind != TokenKind::name || is_constant_name(name.text)) {
    fail(fmt::format("cannot assign to {}", describe(name)));
  }
  take();
  Expr* node = make(Kind::name, name.line);
  node->text = name.text;
  if (space && skip_symbol(".")) {
    node->kind = Kind::space_item;
    node->attribute_name = expect_identifier();
  }
  return node;
}

}  // namespace sluice::text::jinja
