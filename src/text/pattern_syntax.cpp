// Oniguruma's regular expressions rewritten for PCRE2. Where the two read the same characters differently the
// expression is changed; what has no simple counterpart is refused rather than matched wrongly.
#include <fmt/core.h>

#include <vector>

#include "text/pattern.h"

namespace sluice::text {
namespace {

// PCRE2's \s takes U+180E, its \w neither marks nor connector punctuation.
constexpr std::string_view kSpace = "\\p{White_Space}";
constexpr std::string_view kNotSpace = "\\P{White_Space}";
constexpr std::string_view kWordInClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

class Translator {
 public:
  explicit Translator(std::string_view expression) : in_(expression) {}

  Result<std::string> run() {
    while (at_ < in_.size()) SLUICE_RETURN_IF_ERROR(element());
    return std::move(out_);
  }

 private:
  Status refuse(std::string_view what) const {
    return unimplemented(fmt::format("regular expression '{}': {} (at byte {})", in_, what, at_));
  }

  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  void copy(size_t bytes) {
    out_.append(in_.substr(at_, bytes));
    at_ += bytes;
  }

  Status element() {
    switch (in_[at_]) {
      case '\\':
        atom_ = out_.size();
        return escape(false);
      case '[':
        atom_ = out_.size();
        return character_class();
      case '(':
        groups_.push_back(out_.size());
        return group_start();
      case ')':
        if (!groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        }
        copy(1);
        return {};
      case '{':
        return interval();
      case '*':
      case '+':
      case '?':
        copy(1);
        return {};
      default:
        atom_ = out_.size();
        copy(1);
        // The bytes of one character are one atom.
        while (at_ < in_.size() && (static_cast<unsigned char>(in_[at_]) & 0xC0) == 0x80) copy(1);
        return {};
    }
  }

  Status escape(bool in_class) {
    if (at_ + 1 >= in_.size()) return refuse("it ends in a backslash");
    const char letter = in_[at_ + 1];
    const auto replace = [&](std::string_view with) {
      out_.append(with);
      at_ += 2;
      return Status();
    };
    switch (letter) {
      case 's':
        return replace(kSpace);
      case 'S':
        return replace(kNotSpace);
      case 'w':
        return replace(in_class ? std::string(kWordInClass) : fmt::format("[{}]", kWordInClass));
      case 'W':
        if (in_class) return refuse("\\W inside a character class is not supported");
        return replace(fmt::format("[^{}]", kWordInClass));
      case 'h':
      case 'H':
        return refuse("\\h and \\H are not supported");
      case 'u':
        return code_point();
      case 'p':
      case 'P': {
        const size_t close = in_.find('}', at_);
        if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == std::string_view::npos) {
          return refuse("a property is written \\p{Name}");
        }
        copy(close + 1 - at_);
        return {};
      }
      default:
        copy(2);
        return {};
    }
  }

  // \uHHHH
  Status code_point() {
    const std::string_view digits = in_.substr(at_ + 2, 4);
    if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      return refuse("\\u takes four hexadecimal digits");
    }
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
    return {};
  }

  Status character_class() {
    copy(1);
    if (next_is("^")) copy(1);
    if (next_is("]")) return refuse("a character class that starts with ']' is not supported");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (next_is("[:")) {
        const size_t close = in_.find(":]", at_);
        if (close == std::string_view::npos) return refuse("'[:' without ':]'");
        copy(close + 2 - at_);
      } else if (next_is("[")) {
        return refuse("a character class inside a character class is not supported");
      } else if (next_is("&&")) {
        return refuse("'&&' in a character class is not supported");
      } else if (next_is("\\")) {
        SLUICE_RETURN_IF_ERROR(escape(true));
      } else {
        copy(1);
      }
    }
    if (at_ == in_.size()) return refuse("a character class without ']'");
    copy(1);
    return {};
  }

  // In Ruby's syntax the option m lets '.' match newlines: PCRE2's s.
  Status group_start() {
    if (next_is("(?~")) return refuse("the absence operator is not supported");
    copy(1);
    if (!next_is("?")) return {};
    const size_t end = in_.find_first_not_of("imx-", at_ + 1);
    if (end == std::string_view::npos || (in_[end] != ':' && in_[end] != ')')) return {};
    copy(1);
    for (; at_ < end; ++at_) out_.push_back(in_[at_] == 'm' ? 's' : in_[at_]);
    return {};
  }

  // {n,m}; a '+' behind it repeats it there, while PCRE2 reads "possessive".
  Status interval() {
    const size_t close = in_.find('}', at_);
    const std::string_view inside =
        close == std::string_view::npos ? std::string_view() : in_.substr(at_ + 1, close - at_ - 1);
    if (inside.empty() || inside.find_first_not_of("0123456789,") != std::string_view::npos) {
      atom_ = out_.size();
      out_.append("\\{");
      ++at_;
      return {};
    }
    if (inside.front() == ',') return refuse("an interval without a lower bound is not supported");
    copy(close + 1 - at_);
    if (next_is("+")) {
      out_.insert(atom_, "(?:");
      out_.append(")");
    }
    return {};
  }

  std::string_view in_;
  std::string out_;
  size_t at_ = 0;
  size_t atom_ = 0;  // where in out_ the last atom starts
  std::vector<size_t> groups_;
};

}  // namespace

Result<std::string> translate_expression(std::string_view expression) { return Translator(expression).run(); }

}  // namespace sluice::text
