#include "text/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/pre_tokenizer.h"

namespace sluice::text {
namespace {

std::vector<std::string> matches(std::string_view expression, std::string_view text) {
  auto pattern = Pattern::compile(expression);
  EXPECT_TRUE(pattern.ok()) << pattern.status().message();
  std::vector<std::string> found;
  if (!pattern.ok()) return found;
  for (const Span& span : pattern->find_all(text))
    found.emplace_back(text.substr(span.begin, span.end - span.begin));
  return found;
}

TEST(Pattern, TranslatesWhatTheEnginesReadDifferently) {
  EXPECT_EQ(*translate_expression("\\s+\\S"), "\\p{White_Space}+\\P{White_Space}");
  EXPECT_EQ(*translate_expression("[^\\s\\p{L}]"), "[^\\p{White_Space}\\p{L}]");
  EXPECT_EQ(*translate_expression("\\p{N}{1,3}+x"), "(?:\\p{N}{1,3})+x");
  EXPECT_EQ(*translate_expression("(ab|c){2}+"), "(?:(ab|c){2})+");
  EXPECT_EQ(*translate_expression("[a-c]{2}+"), "(?:[a-c]{2})+");
  EXPECT_EQ(*translate_expression("(?mi:.)"), "(?si:.)");
  EXPECT_EQ(*translate_expression("\\u00e9{x"), "\\x{00e9}\\{x");
  EXPECT_EQ(*translate_expression("\\p{L}++ \\\\s"), "\\p{L}++ \\\\s");
}

TEST(Pattern, RefusesWhatItCannotTranslate) {
  for (const char* expression : {"[a[bc]]", "[a&&b]", "\\h", "[\\W]", "(?~a)", "a{,3}", "\\", "[a", "(a",
                                 "[]a]", "a**", "\\p{Nope}"}) {
    const auto pattern = Pattern::compile(expression);
    ASSERT_FALSE(pattern.ok()) << expression;
    EXPECT_THAT(pattern.status().message(), testing::HasSubstr(expression));
  }
}

TEST(Pattern, FindsAllMatchesWithoutEmptyOnes) {
  EXPECT_THAT(matches("a*", "baac"), testing::ElementsAre("aa"));
  EXPECT_THAT(matches("(a)|(b)", "abc"), testing::ElementsAre("a", "b"));
  EXPECT_THAT(matches("\\s+(?!\\S)|\\s+", "a   b "), testing::ElementsAre("  ", " ", " "));
  EXPECT_THAT(matches("x?", "é你"), testing::IsEmpty());
  // U+180E is white space for PCRE2's own \s, not for Unicode.
  EXPECT_THAT(matches("\\s", "a\u180E\u0085b"), testing::ElementsAre("\u0085"));
  EXPECT_THAT(matches("\\w+", "a\u0301_‿1 b"), testing::ElementsAre("a\u0301_‿1", "b"));
  EXPECT_THAT(matches("(?i:'s)", "'ſ 'S"), testing::ElementsAre("'ſ", "'S"));
  EXPECT_THAT(matches("^a$", "a\na\r"), testing::ElementsAre("a"));
}

TEST(Pattern, LiteralsAreNoExpressions) {
  const auto pattern = Pattern::literal("a.b\\E(");
  ASSERT_TRUE(pattern.ok());
  EXPECT_EQ(pattern->find_all("a.b\\E( axb").size(), 1u);
}

// Exponential backtracking ends at the limit; the rest counts as unmatched.
TEST(Pattern, HostilePatternEnds) {
  const std::string text(100, 'a');
  EXPECT_TRUE(matches("(a+)+b", text).empty());
}

TEST(SplitSpans, Behaviours) {
  const std::string_view text = "a--b-c";
  const std::vector<Span> dashes = {{1, 3}, {4, 5}};
  const auto parts = [&](SplitBehaviour behaviour, bool invert = false) {
    std::string out;
    for (const Span& span : split_spans(text, dashes, behaviour, invert)) {
      out += "[" + std::string(text.substr(span.begin, span.end - span.begin)) + "]";
    }
    return out;
  };
  EXPECT_EQ(parts(SplitBehaviour::isolated), "[a][--][b][-][c]");
  EXPECT_EQ(parts(SplitBehaviour::removed), "[a][b][c]");
  EXPECT_EQ(parts(SplitBehaviour::removed, true), "[--][-]");
  EXPECT_EQ(parts(SplitBehaviour::merged_with_previous), "[a--][b-][c]");
  EXPECT_EQ(parts(SplitBehaviour::merged_with_next), "[a][--b][-c]");
  EXPECT_EQ(parts(SplitBehaviour::contiguous), "[a][--][b][-][c]");
}

}  // namespace
}  // namespace sluice::text
