// One regular expression of a tokenizer.json, with the meaning that the tokenizers library's engine
// (Oniguruma, Ruby syntax, Unicode) gives it, run by PCRE2. Matching is bounded: no text takes more than time
// in proportion to its length times a constant that the pattern sets.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::text {

// Bytes [begin, end) of a text.
struct Span {
  size_t begin;
  size_t end;
};

class Pattern {
 public:
  static Result<Pattern> compile(std::string_view expression);
  // Matches the text itself.
  static Result<Pattern> literal(std::string_view text);

  // Thread-safe. All matches in valid text, from left to right, without empty ones. When the engine's limits
  // stop a match, the rest of the text counts as unmatched.
  std::vector<Span> find_all(std::string_view valid) const;

 private:
  struct Code;
  explicit Pattern(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  static Result<Pattern> build(std::string_view translated, std::string_view shown, bool literal);

  std::shared_ptr<const Code> code_;
};

// Exposed for its tests: the same expression in PCRE2's syntax.
Result<std::string> translate_expression(std::string_view expression);

}  // namespace sluice::text
