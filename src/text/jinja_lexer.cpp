#include "text/jinja_lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>

#include "text/jinja_value.h"
#include "text/python_text.h"
#include "text/unicode.h"

namespace sluice::text::jinja {
namespace {

using Kind = Token::Kind;

std::string with_plain_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_newlines(source)), in_(source_) {}

  std::vector<Token> run() {
    while (at_ < in_.size()) text_and_tag();
    add(Kind::end, "", at_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string_view what, size_t at) const {
    const auto [line, column] = place(at);
    throw Error(at_place(line, column, what));
  }

  std::pair<int, int> place(size_t at) const {
    const std::string_view before = in_.substr(0, at);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t start = before.rfind('\n') + 1;  // npos + 1 is 0
    return {static_cast<int>(line), static_cast<int>(at - start) + 1};
  }

  void add(Kind kind, std::string text, size_t at) {
    // Lines are counted onwards from the last token: tokens come in order.
    for (; counted_ < at; ++counted_) {
      if (in_[counted_] == '\n') {
        ++line_;
        line_start_ = counted_ + 1;
      }
    }
    tokens_.push_back({kind, std::move(text), line_, static_cast<int>(at - line_start_) + 1});
  }

  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  // Python's \s.
  size_t skip_space(size_t at) const {
    while (at < in_.size()) {
      size_t behind = at;
      if (!python::is_space(next_code_point(in_, behind))) break;
      at = behind;
    }
    return at;
  }

  // Whether the text that ends at `end` ended a line: what lstrip_blocks asks about the tag before.
  void close_tag(size_t end) {
    at_ = end;
    line_starting_ = end > 0 && in_[end - 1] == '\n';
  }

  size_t next_tag() const {
    for (size_t at = in_.find('{', at_); at != std::string_view::npos; at = in_.find('{', at + 1)) {
      if (at + 1 < in_.size() && (in_[at + 1] == '{' || in_[at + 1] == '%' || in_[at + 1] == '#')) return at;
    }
    return std::string_view::npos;
  }

  void add_data(size_t begin, size_t end, char sign, bool variable) {
    std::string_view text = in_.substr(begin, end - begin);
    if (sign == '-') {
      text = python::strip(text, python::Side::right);
    } else if (sign != '+' && !variable) {
      const size_t line = text.rfind('\n') + 1;
      if ((line > 0 || line_starting_) && python::strip(text.substr(line), python::Side::both).empty()) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) add(Kind::data, std::string(text), begin);
  }

  char sign_at(size_t at) const {
    return at < in_.size() && (in_[at] == '-' || in_[at] == '+') ? in_[at] : '\0';
  }

  void text_and_tag() {
    const size_t begin = at_;
    const size_t tag = next_tag();
    if (tag == std::string_view::npos) {
      add(Kind::data, std::string(in_.substr(begin)), begin);
      at_ = in_.size();
      return;
    }
    const char kind = in_[tag + 1];
    const char sign = sign_at(tag + 2);
    add_data(begin, tag, sign, kind == '{');
    at_ = tag + 2 + (sign != '\0' ? 1 : 0);
    if (kind == '#') return comment(tag);
    if (kind == '%' && raw(tag)) return;
    add(kind == '{' ? Kind::variable_begin : Kind::block_begin, "", tag);
    inside_tag(kind == '{' ? Kind::variable_end : Kind::block_end, tag);
  }

  void comment(size_t tag) {
    const size_t close = in_.find("#}", at_);
    if (close == std::string_view::npos) fail("a comment without '#}'", tag);
    const char sign = close > at_ ? in_[close - 1] : '\0';
    close_tag(end_of_block(close + 2, sign));
  }

  // Where the text goes on behind a closing "%}" or "#}" that ends at `end`.
  size_t end_of_block(size_t end, char sign) const {
    if (sign == '-') return skip_space(end);
    if (sign != '+' && end < in_.size() && in_[end] == '\n') return end + 1;
    return end;
  }

  // {% raw %}...{% endraw %}: at_ stands behind "{%" and its sign.
  bool raw(size_t tag) {
    size_t at = skip_space(at_);
    if (!in_.substr(at).starts_with("raw")) return false;
    at = skip_space(at + 3);
    if (in_.substr(at).starts_with("-%}")) {
      at = skip_space(at + 3);
    } else if (in_.substr(at).starts_with("%}")) {
      at += 2;
    } else {
      return false;
    }
    close_tag(at);
    for (size_t open = in_.find("{%", at); open != std::string_view::npos; open = in_.find("{%", open + 1)) {
      const char sign = sign_at(open + 2);
      size_t end = skip_space(open + 2 + (sign != '\0' ? 1 : 0));
      if (!in_.substr(end).starts_with("endraw")) continue;
      end = skip_space(end + 6);
      const char close_sign = sign_at(end);
      if (close_sign != '\0') ++end;
      if (!in_.substr(end).starts_with("%}")) continue;
      add_data(at, open, sign, false);
      close_tag(end_of_block(end + 2, close_sign));
      return true;
    }
    fail("a raw block without {% endraw %}", tag);
  }

  void inside_tag(Kind closing, size_t tag) {
    std::string open;  // brackets that wait for their partner
    while (true) {
      if (open.empty() && tag_ends(closing)) return;
      const size_t behind = skip_space(at_);
      if (behind != at_) {
        at_ = behind;
        continue;
      }
      if (at_ == in_.size()) {
        fail(closing == Kind::variable_end ? "a '{{' without '}}'" : "a '{%' without '%}'", tag);
      }
      const char c = in_[at_];
      if (is_digit(c)) {
        number();
      } else if (is_name_character(c)) {
        const size_t begin = at_;
        while (at_ < in_.size() && is_name_character(in_[at_])) ++at_;
        add(Kind::name, std::string(in_.substr(begin, at_ - begin)), begin);
      } else if (c == '\'' || c == '"') {
        string();
      } else {
        symbol(open);
      }
    }
  }

  bool tag_ends(Kind closing) {
    const std::string_view mark = closing == Kind::variable_end ? "}}" : "%}";
    const char sign = sign_at(at_);
    const size_t begin = at_;
    if (!in_.substr(at_ + (sign != '\0' ? 1 : 0)).starts_with(mark)) return false;
    if (closing == Kind::variable_end && sign == '+') return false;
    const size_t end = at_ + (sign != '\0' ? 3 : 2);
    add(closing, "", begin);
    close_tag(closing == Kind::block_end ? end_of_block(end, sign) : sign == '-' ? skip_space(end) : end);
    return true;
  }

  // Digits with single underscores between them.
  size_t skip_digits(size_t at) const {
    while (at < in_.size() &&
           (is_digit(in_[at]) || (in_[at] == '_' && at + 1 < in_.size() && is_digit(in_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void number() {
    const size_t begin = at_;
    if (in_[at_] == '0' && at_ + 1 < in_.size() && std::string_view("xXoObB").find(in_[at_ + 1]) < 6) {
      at_ += 2;
      while (at_ < in_.size() && is_name_character(in_[at_])) ++at_;
      return add_number(Kind::integer, begin, at_);
    }
    const size_t whole = skip_digits(begin);
    size_t end = whole;
    const bool behind_dot = begin > 0 && in_[begin - 1] == '.';  // a.0.1 has no number in it
    if (!behind_dot) {
      if (end + 1 < in_.size() && in_[end] == '.' && is_digit(in_[end + 1])) end = skip_digits(end + 1);
      if (end < in_.size() && (in_[end] == 'e' || in_[end] == 'E')) {
        const size_t digits = end + 1 + (sign_at(end + 1) != '\0' ? 1 : 0);
        if (digits < in_.size() && is_digit(in_[digits])) end = skip_digits(digits);
      }
    }
    add_number(end == whole ? Kind::integer : Kind::number, begin, end);
  }

  void add_number(Kind kind, size_t begin, size_t end) {
    std::string text(in_.substr(begin, end - begin));
    std::erase(text, '_');
    add(kind, std::move(text), begin);
    at_ = end;
  }

  void symbol(std::string& open) {
    constexpr std::array<std::string_view, 27> kSymbols = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";", "!"};
    const auto found = std::find_if(kSymbols.begin(), kSymbols.end(),
                                    [this](std::string_view symbol) { return next_is(symbol); });
    if (found == kSymbols.end() || *found == "!") {
      size_t end = at_;
      next_code_point(in_, end);
      fail(fmt::format("unexpected character '{}'", in_.substr(at_, end - at_)), at_);
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(fmt::format("unexpected '{}'", c), at_);
      if (open.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()), at_);
      open.pop_back();
    }
    add(Kind::symbol, std::string(*found), at_);
    at_ += found->size();
  }

  void string() {
    const size_t begin = at_;
    const char quote = in_[at_++];
    std::string value;
    while (true) {
      if (at_ >= in_.size()) fail("a string without its closing quote", begin);
      const char c = in_[at_++];
      if (c == quote) break;
      if (c != '\\') {
        value += c;
      } else {
        escape(value, begin);
      }
    }
    add(Kind::string, std::move(value), begin);
  }

  // Python's escapes; at_ stands behind the backslash. An unknown one stays as it is.
  void escape(std::string& value, size_t begin) {
    if (at_ >= in_.size()) fail("a string without its closing quote", begin);
    const char c = in_[at_++];
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t found = kLetters.find(c); found != std::string_view::npos) {
      value += kMeanings[found];
    } else if (c == '\n') {
      // A line continued.
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_character(value, hexadecimal(c == 'x' ? 2 : c == 'u' ? 4 : 8));
    } else if (c >= '0' && c <= '7') {
      char32_t point = static_cast<char32_t>(c - '0');
      for (int i = 0; i < 2 && at_ < in_.size() && in_[at_] >= '0' && in_[at_] <= '7'; ++i) {
        point = point * 8 + static_cast<char32_t>(in_[at_++] - '0');
      }
      append_character(value, point);
    } else if (c == 'N') {
      fail("characters by name (\\N) are not supported", at_ - 2);
    } else {
      value += '\\';
      value += c;
    }
  }

  char32_t hexadecimal(size_t digits) {
    char32_t point = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = at_ < in_.size() ? in_[at_] : '\0';
      const size_t value = std::string_view("0123456789abcdefABCDEF").find(c);
      if (c == '\0' || value == std::string_view::npos) fail("a truncated \\x, \\u or \\U escape", at_);
      point = point * 16 + static_cast<char32_t>(value < 16 ? value : value - 6);
    }
    return point;
  }

  // Two surrogates in a row are one character; a lone one cannot be said in UTF-8.
  void append_character(std::string& value, char32_t point) {
    if (point >= 0xD800 && point < 0xDC00 && next_is("\\u")) {
      const size_t back = at_;
      at_ += 2;
      const char32_t low = hexadecimal(4);
      if (low >= 0xDC00 && low < 0xE000) {
        append_code_point(value, 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00));
        return;
      }
      at_ = back;
    }
    if ((point >= 0xD800 && point < 0xE000) || point > 0x10FFFF) point = 0xFFFD;
    append_code_point(value, point);
  }

  std::string source_;
  std::string_view in_;
  size_t at_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
  size_t counted_ = 0;
  int line_ = 1;
  size_t line_start_ = 0;
};

}  // namespace

std::vector<Token> tokenize(std::string_view valid_source) { return Lexer(valid_source).run(); }

std::string at_place(int line, int column, std::string_view what) {
  return fmt::format("line {}, column {}: {}", line, column, what);
}

}  // namespace sluice::text::jinja
