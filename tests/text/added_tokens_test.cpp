#include "text/added_tokens.h"

#include <gtest/gtest.h>

namespace sluice::text {
namespace {

AddedToken token(int32_t id, std::string content, bool special = false) {
  AddedToken added;
  added.id = id;
  added.content = std::move(content);
  added.special = special;
  return added;
}

// "text" for ordinary stretches, "<id:text>" for tokens.
std::string split(const AddedTokenFinder& finder, std::string_view text, bool special = true) {
  std::string out;
  for (const auto& piece : finder.split(text, special)) {
    out += piece.id < 0 ? "[" + std::string(piece.text) + "]"
                        : "<" + std::to_string(piece.id) + ":" + std::string(piece.text) + ">";
  }
  return out;
}

TEST(AddedTokens, LeftmostThenLongest) {
  AddedTokenFinder finder;
  for (const AddedToken& added : {token(1, "ab"), token(2, "abc"), token(3, "bcd"), token(4, "")}) {
    finder.add(added, added.content);
  }
  EXPECT_EQ(split(finder, "xabcdab"), "[x]<2:abc>[d]<1:ab>");
  EXPECT_EQ(split(finder, "xbcdabab"), "[x]<3:bcd><1:ab><1:ab>");
  EXPECT_EQ(split(finder, ""), "");
  EXPECT_EQ(split(finder, "a"), "[a]");
}

TEST(AddedTokens, SpecialOnesCanBeLeftInTheText) {
  AddedTokenFinder finder;
  for (const AddedToken& added : {token(1, "<end>", true), token(2, "<tool>")})
    finder.add(added, added.content);
  EXPECT_EQ(split(finder, "a<end>b<tool>", true), "[a]<1:<end>>[b]<2:<tool>>");
  EXPECT_EQ(split(finder, "a<end>b<tool>", false), "[a<end>b]<2:<tool>>");
}

TEST(AddedTokens, FlagsTakeBlanksAndRespectWords) {
  AddedTokenFinder finder;
  AddedToken strips = token(1, "<s>");
  strips.lstrip = strips.rstrip = true;
  AddedToken word = token(2, "word");
  word.single_word = true;
  finder.add(strips, strips.content);
  finder.add(word, word.content);
  EXPECT_EQ(split(finder, "a \u3000<s> \n b"), "[a]<1: \u3000<s> \n >[b]");
  EXPECT_EQ(split(finder, "<s> <s>"), "<1:<s> ><1:<s>>");
  EXPECT_EQ(split(finder, "word words sword éword word"), "<2:word>[ words sword éword ]<2:word>");
}

}  // namespace
}  // namespace sluice::text
