// Operators, from the loosest to the tightest.
#include "text/jinja_expression_parser.h"

#include <fmt/core.h>

#include <optional>

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

}  // namespace sluice::text::jinja
