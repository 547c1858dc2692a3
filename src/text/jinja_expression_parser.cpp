#include "text/jinja_expression_parser.h"

#include <fmt/core.h>

#include <charconv>
#include <optional>
#include <system_error>

namespace sluice::text::jinja {
namespace {

using Kind = Expr::Kind;
using TokenKind = Token::Kind;

constexpr int kMaxNesting = 120;

std::optional<Operator> comparison_operator(const Token& token) {
  if (token.kind != TokenKind::symbol) return std::nullopt;
  if (token.text == "==") return Operator::equal;
  if (token.text == "!=") return Operator::not_equal;
  if (token.text == "<") return Operator::less;
  if (token.text == "<=") return Operator::less_equal;
  if (token.text == ">") return Operator::greater;
  if (token.text == ">=") return Operator::greater_equal;
  return std::nullopt;
}

std::optional<Operator> product_operator(const Token& token) {
  if (token.kind != TokenKind::symbol) return std::nullopt;
  if (token.text == "*") return Operator::multiply;
  if (token.text == "/") return Operator::divide;
  if (token.text == "//") return Operator::floor_divide;
  if (token.text == "%") return Operator::modulo;
  return std::nullopt;
}

bool is_constant_name(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.depth_ > kMaxNesting) {
    parser_.fail(fmt::format("nested more than {} deep", kMaxNesting));
  }
}

ExpressionParser::Nesting::~Nesting() { --parser_.depth_; }

Token ExpressionParser::take() {
  Token token = current();
  if (token.kind != TokenKind::end) ++at_;
  return token;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_symbol(std::string_view symbol) {
  if (!is_symbol(symbol)) return false;
  take();
  return true;
}

void ExpressionParser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) fail(fmt::format("expected '{}', found {}", symbol, describe(current())));
}

void ExpressionParser::expect(TokenKind kind) {
  if (current().kind != kind) {
    fail(fmt::format("expected {}, found {}", describe({kind, "", 0, 0}), describe(current())));
  }
  take();
}

std::string ExpressionParser::expect_identifier() {
  if (current().kind != TokenKind::name) fail(fmt::format("expected a name, found {}", describe(current())));
  return take().text;
}

bool ExpressionParser::mentioned_since(size_t start, std::string_view name) const {
  for (size_t i = start; i < at_; ++i) {
    if (tokens_[i].kind == TokenKind::name && tokens_[i].text == name) return true;
  }
  return false;
}

void ExpressionParser::fail(std::string_view what) const { fail_at(current(), what); }

void ExpressionParser::fail_at(const Token& token, std::string_view what) const {
  throw Error(at_place(token.line, token.column, what));
}

std::string ExpressionParser::describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::variable_begin:
      return "'{{'";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::string:
      return "a string";
    case TokenKind::end:
      return "the end of the template";
    default:
      return "'" + token.text + "'";
  }
}

Expr* ExpressionParser::make(Kind kind, int line) {
  Expr& node = program_.expressions.emplace_back();
  node.kind = kind;
  node.line = line;
  return &node;
}

const Expr* ExpressionParser::tuple(bool conditional, std::string_view end_name, bool in_parentheses) {
  const int line = current().line;
  std::vector<const Expr*> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_symbol(",");
    if (current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end ||
        is_symbol(")") || (!end_name.empty() && is_name(end_name))) {
      break;
    }
    items.push_back(expression(conditional));
    if (!is_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return items[0];
    if (!in_parentheses) fail(fmt::format("expected an expression, found {}", describe(current())));
  }
  Expr* node = make(Kind::tuple, line);
  node->items = std::move(items);
  return node;
}

const Expr* ExpressionParser::expression(bool conditional) {
  const Nesting nesting(*this);
  return conditional ? conditional_expression() : logical_or();
}

const Expr* ExpressionParser::conditional_expression() {
  const Expr* value = logical_or();
  while (is_name("if")) {
    Expr* node = make(Kind::conditional, take().line);
    const Expr* condition = logical_or();
    const Expr* otherwise = nullptr;
    if (skip_name("else")) {
      const Nesting nesting(*this);
      otherwise = conditional_expression();
    }
    node->items = {condition, value, otherwise};
    value = node;
  }
  return value;
}

const Expr* ExpressionParser::logical_or() {
  const Expr* left = logical_and();
  while (is_name("or")) {
    Expr* node = make(Kind::logical_or, take().line);
    node->items = {left, logical_and()};
    left = node;
  }
  return left;
}

const Expr* ExpressionParser::logical_and() {
  const Expr* left = logical_not();
  while (is_name("and")) {
    Expr* node = make(Kind::logical_and, take().line);
    node->items = {left, logical_not()};
    left = node;
  }
  return left;
}

const Expr* ExpressionParser::logical_not() {
  if (!is_name("not")) return comparison();
  const Nesting nesting(*this);
  Expr* node = make(Kind::logical_not, take().line);
  node->items = {logical_not()};
  return node;
}

const Expr* ExpressionParser::comparison() {
  const int line = current().line;
  std::vector<const Expr*> items{sum()};
  std::vector<Operator> operators;
  while (true) {
    if (const auto op = comparison_operator(current())) {
      take();
      operators.push_back(*op);
    } else if (skip_name("in")) {
      operators.push_back(Operator::in);
    } else if (is_name("not") && look_ahead().kind == TokenKind::name && look_ahead().text == "in") {
      take();
      take();
      operators.push_back(Operator::not_in);
    } else {
      break;
    }
    items.push_back(sum());
  }
  if (operators.empty()) return items[0];
  Expr* node = make(Kind::compare, line);
  node->items = std::move(items);
  node->operators = std::move(operators);
  return node;
}

const Expr* ExpressionParser::binary(Operator op, const Expr* left, const Expr* right, int line) {
  Expr* node = make(Kind::binary, line);
  node->operators = {op};
  node->items = {left, right};
  return node;
}

const Expr* ExpressionParser::sum() {
  const Expr* left = concatenation();
  while (is_symbol("+") || is_symbol("-")) {
    const Token sign = take();
    const Operator op = sign.text == "+" ? Operator::add : Operator::subtract;
    left = binary(op, left, concatenation(), sign.line);
  }
  return left;
}

const Expr* ExpressionParser::concatenation() {
  const int line = current().line;
  std::vector<const Expr*> items{product()};
  while (skip_symbol("~")) items.push_back(product());
  if (items.size() == 1) return items[0];
  Expr* node = make(Kind::concat, line);
  node->items = std::move(items);
  return node;
}

const Expr* ExpressionParser::product() {
  const Expr* left = power();
  while (const auto op = product_operator(current())) {
    const int line = take().line;
    left = binary(*op, left, power(), line);
  }
  return left;
}

const Expr* ExpressionParser::power() {
  const Expr* left = unary();
  while (is_symbol("**")) {
    const int line = take().line;
    left = binary(Operator::power, left, unary(), line);
  }
  return left;
}

const Expr* ExpressionParser::unary(bool with_filter) {
  const Expr* value = nullptr;
  if (is_symbol("-") || is_symbol("+")) {
    const Nesting nesting(*this);
    const Token sign = take();
    Expr* node = make(sign.text == "-" ? Kind::negative : Kind::positive, sign.line);
    node->items = {unary(false)};
    value = node;
  } else {
    value = primary();
  }
  value = postfix(value);
  return with_filter ? filters_and_tests(value) : value;
}

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
