#include "text/jinja_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>

#include "text/jinja_expression_parser.h"

namespace sluice::text::jinja {
namespace {

using Kind = Statement::Kind;
using TokenKind = Token::Kind;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  void run() { program_.body = block({}); }

 private:
  Statement* make_statement(Kind kind, int line) {
    Statement& node = program_.statements.emplace_back();
    node.kind = kind;
    node.line = line;
    return &node;
  }

  // Statements up to a tag that starts with one of `ends`, which stays the current token. Without any: to the
  // end of the template.
  Block block(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    Block body;
    while (current().kind != TokenKind::end) {
      const Token token = take();
      if (token.kind == TokenKind::data) {
        Statement* node = make_statement(Kind::data, token.line);
        node->text = token.text;
        body.push_back(node);
      } else if (token.kind == TokenKind::variable_begin) {
        Statement* node = make_statement(Kind::output, token.line);
        node->value = tuple();
        body.push_back(node);
        expect(TokenKind::variable_end);
      } else {
        if (std::any_of(ends.begin(), ends.end(), [this](std::string_view end) { return is_name(end); })) {
          return body;
        }
        body.push_back(statement());
        expect(TokenKind::block_end);
      }
    }
    if (ends.size() > 0) {
      fail(fmt::format("the template ends before '{{% {} %}}'", *(ends.end() - 1)));
    }
    return body;
  }

  // The body of a tag, up to one of `ends`.
  Block body_until(std::initializer_list<std::string_view> ends) {
    skip_symbol(":");
    expect(TokenKind::block_end);
    return block(ends);
  }

  Block whole_body(std::string_view end) {
    Block body = body_until({end});
    take();
    return body;
  }

  const Statement* statement() {
    const Token tag = current();
    if (tag.kind != TokenKind::name) fail(fmt::format("expected the name of a tag, found {}", describe(tag)));
    take();
    const std::string& name = tag.text;
    if (name == "if") return if_statement(tag.line);
    if (name == "for") return for_statement(tag.line);
    if (name == "set") return set_statement(tag.line);
    if (name == "macro") return macro(tag.line);
    if (name == "call") return call_block(tag.line);
    if (name == "filter") return filter_block(tag.line);
    if (name == "with") return with(tag.line);
    if (name == "print") return print(tag.line);
    if (name == "generation") return scope(tag.line, "endgeneration");
    if (name == "autoescape") {
      expression();
      return scope(tag.line, "endautoescape");
    }
    if (name == "block") {
      const std::string block_name = expect_identifier();
      skip_name("scoped");
      skip_name("required");
      const Statement* node = scope(tag.line, "endblock");
      skip_name(block_name);
      return node;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail_at(tag, fmt::format("'{}' outside of a loop", name));
      return make_statement(name == "break" ? Kind::break_loop : Kind::continue_loop, tag.line);
    }
    if (name == "include" || name == "import" || name == "from" || name == "extends") {
      fail_at(tag, fmt::format("'{}' needs other templates; a chat template has none", name));
    }
    fail_at(tag, fmt::format("unknown tag '{}'", name));
  }

  const Statement* if_statement(int line) {
    Statement* node = make_statement(Kind::if_else, line);
    while (true) {
      const Expr* condition = tuple(false);
      node->branches.push_back({condition, body_until({"elif", "else", "endif"})});
      const Token next = take();
      if (next.text == "elif") continue;
      if (next.text == "else") node->otherwise = whole_body("endif");
      return node;
    }
  }

  const Statement* for_statement(int line) {
    Statement* node = make_statement(Kind::for_loop, line);
    node->target = assignment_target("in", false);
    if (node->target->text == "loop") fail("cannot assign to the special variable 'loop'");
    if (!skip_name("in")) fail(fmt::format("expected 'in', found {}", describe(current())));
    node->value = tuple(false, "recursive");
    if (skip_name("if")) node->condition = expression();
    node->recursive = skip_name("recursive");
    ++loops_;
    node->body = body_until({"else", "endfor"});
    --loops_;
    if (take().text == "else") node->otherwise = whole_body("endfor");
    return node;
  }

  const Statement* set_statement(int line) {
    Statement* node = make_statement(Kind::set, line);
    node->target = assignment_target({}, true);
    if (skip_symbol("=")) {
      node->value = tuple();
      return node;
    }
    node->kind = Kind::set_block;
    node->value = filters(nullptr);
    node->body = whole_body("endset");
    return node;
  }

  std::vector<Parameter> signature() {
    std::vector<Parameter> parameters;
    expect_symbol("(");
    while (!is_symbol(")")) {
      if (!parameters.empty()) expect_symbol(",");
      std::string name = expect_identifier();
      const bool optional = skip_symbol("=");
      if (!optional && !parameters.empty() && parameters.back().otherwise != nullptr) {
        fail("a parameter without a default behind one with a default");
      }
      parameters.push_back({std::move(name), optional ? expression() : nullptr});
    }
    expect_symbol(")");
    return parameters;
  }

  const Statement* macro(int line) {
    Statement* node = make_statement(Kind::macro, line);
    node->text = expect_identifier();
    node->parameters = signature();
    const size_t start = position();
    node->body = loop_free_body("endmacro");
    node->takes_more_positional = mentioned_since(start, "varargs");
    node->takes_more_keywords = mentioned_since(start, "kwargs");
    return node;
  }

  const Statement* call_block(int line) {
    Statement* node = make_statement(Kind::call_block, line);
    if (is_symbol("(")) node->parameters = signature();
    node->value = expression();
    if (node->value->kind != Expr::Kind::call) fail("expected a call behind 'call'");
    node->body = loop_free_body("endcall");
    return node;
  }

  // A body that runs elsewhere: it cannot break a loop around it.
  Block loop_free_body(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Block body = whole_body(end);
    loops_ = loops;
    return body;
  }

  const Statement* filter_block(int line) {
    Statement* node = make_statement(Kind::filter_block, line);
    node->value = filters(nullptr, true);
    node->body = whole_body("endfilter");
    return node;
  }

  const Statement* with(int line) {
    Statement* node = make_statement(Kind::with, line);
    while (current().kind != TokenKind::block_end) {
      if (!node->bindings.empty()) expect_symbol(",");
      const Expr* target = assignment_target({}, false);
      expect_symbol("=");
      node->bindings.emplace_back(target, expression());
    }
    node->body = whole_body("endwith");
    return node;
  }

  const Statement* print(int line) {
    Statement* node = make_statement(Kind::output, line);
    Expr* joined = make(Expr::Kind::concat, line);
    while (current().kind != TokenKind::block_end) {
      if (!joined->items.empty()) expect_symbol(",");
      joined->items.push_back(expression());
    }
    node->value = joined;
    return node;
  }

  const Statement* scope(int line, std::string_view end) {
    Statement* node = make_statement(Kind::scope, line);
    node->body = whole_body(end);
    return node;
  }

  int loops_ = 0;
};

}  // namespace

Program parse(std::string_view valid_source) {
  Program program;
  Parser(tokenize(valid_source), program).run();
  return program;
}

}  // namespace sluice::text::jinja
