// The expressions of the grammar. The parser of statements builds on it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace sluice::text::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Program& program)
      : tokens_(std::move(tokens)), program_(program) {}

 protected:
  // One level of recursion; too many are an error before they overflow the stack.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting();
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& look_ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take();
  bool is_name(std::string_view name) const {
    return current().kind == Token::Kind::name && current().text == name;
  }
  bool is_symbol(std::string_view symbol) const {
    return current().kind == Token::Kind::symbol && current().text == symbol;
  }
  bool skip_name(std::string_view name);
  bool skip_symbol(std::string_view symbol);
  void expect_symbol(std::string_view symbol);
  void expect(Token::Kind kind);
  std::string expect_identifier();
  [[noreturn]] void fail(std::string_view what) const;
  [[noreturn]] void fail_at(const Token& token, std::string_view what) const;
  size_t position() const { return at_; }
  // Whether the name stands between `start` and here.
  bool mentioned_since(size_t start, std::string_view name) const;
  static std::string describe(const Token& token);

  Expr* make(Expr::Kind kind, int line);

  // Several expressions with commas between make a tuple. `end_name` is a word that ends it.
  const Expr* tuple(bool conditional = true, std::string_view end_name = {}, bool in_parentheses = false);
  const Expr* expression(bool conditional = true);
  // "| name(arguments) | ..." behind `value`; with `first`, the name comes without its bar.
  const Expr* filters(const Expr* value, bool first = false);
  // A name, a namespace's attribute if `space`, or a tuple of such.
  const Expr* assignment_target(std::string_view end_name, bool space);

 private:
  const Expr* conditional_expression();
  const Expr* logical_or();
  const Expr* logical_and();
  const Expr* logical_not();
  const Expr* comparison();
  const Expr* sum();
  const Expr* concatenation();
  const Expr* product();
  const Expr* power();
  const Expr* unary(bool with_filter = true);
  const Expr* primary();
  const Expr* name_or_constant();
  const Expr* integer();
  const Expr* number();
  const Expr* list_display();
  const Expr* dict_display();
  const Expr* postfix(const Expr* value);
  const Expr* filters_and_tests(const Expr* value);
  const Expr* subscript(const Expr* value);
  const Expr* subscribed();
  const Expr* call(const Expr* callee);
  void call_arguments(Expr& call);
  const Expr* test(const Expr* value);
  std::string dotted_name();
  const Expr* binary(Operator op, const Expr* left, const Expr* right, int line);
  const Expr* target_item(bool space);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;

 protected:
  Program& program_;
};

}  // namespace sluice::text::jinja
