#include "text/unicode.h"

#include <gtest/gtest.h>

#include <random>

#include "text/byte_level.h"
#include "text/recent_characters.h"

namespace sluice::text {
namespace {

std::string repaired(std::string_view bytes) {
  std::string out;
  append_valid_utf8(out, bytes, true);
  return out;
}

// The examples of Unicode 3.9, table 3-8 to 3-11, and what Python's errors="replace" gives.
TEST(Unicode, ReplacesMaximalSubparts) {
  const std::string mark = "\uFFFD";
  EXPECT_EQ(repaired("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            mark + mark + mark + mark + mark + mark + mark + mark + "A");
  EXPECT_EQ(repaired("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            mark + mark + mark + mark + mark + mark + mark + mark + "A");
  EXPECT_EQ(repaired("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            mark + mark + mark + mark + mark + "A" + mark + mark + "B");
  EXPECT_EQ(repaired("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), mark + mark + mark + mark + "A");
  EXPECT_EQ(repaired("a\xE4\xBD"), "a" + mark);
  EXPECT_EQ(repaired(""), "");
}

TEST(Unicode, RepairInPiecesEqualsRepairAtOnce) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (size_t i = 0; i < 1 + random() % 12; ++i) {
      constexpr std::string_view kBytes = "a\x80\xBF\xC3\xE2\x82\xED\xA0\xF0\x9F\x98\xF4\xFF";
      bytes += kBytes[random() % kBytes.size()];
    }
    std::string out;
    std::string pending;
    for (const char byte : bytes) {
      pending += byte;
      pending.erase(0, append_valid_utf8(out, pending, false));
      ASSERT_LE(pending.size(), 3u);
    }
    append_valid_utf8(out, pending, true);
    ASSERT_EQ(out, repaired(bytes));
    ASSERT_TRUE(is_valid_utf8(out));
  }
}

TEST(Unicode, CodePointsRoundTrip) {
  for (char32_t point = 0; point < 0x110000; point += 37) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string text;
    append_code_point(text, point);
    ASSERT_TRUE(is_valid_utf8(text));
    size_t at = 0;
    ASSERT_EQ(next_code_point(text, at), point);
    ASSERT_EQ(at, text.size());
    ASSERT_EQ(count_code_points(text), 1u);
  }
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalize("e\u0301", NormalForm::nfc), "é");
  EXPECT_EQ(normalize("é", NormalForm::nfd), "e\u0301");
  EXPECT_EQ(normalize("\u212B\u1100\u1161\u11A8", NormalForm::nfc), "\u00C5\uAC01");
  EXPECT_EQ(normalize("\uFB01 \u2460", NormalForm::nfc), "\uFB01 \u2460");
  EXPECT_EQ(normalize("\uFB01 \u2460", NormalForm::nfkc), "fi 1");
  EXPECT_EQ(normalize("\uFDFA", NormalForm::nfkd).size(), 33u);  // the longest decomposition: 18 letters
  // Marks in canonical order: the dot below (220) before the acute (230); equal classes stay as they were.
  EXPECT_EQ(normalize("q\u0307\u0323", NormalForm::nfc), "q\u0323\u0307");
  EXPECT_EQ(normalize("q\u0301\u0300", NormalForm::nfc), "q\u0301\u0300");
  const std::string with_nul("a\0e\u0301", 5);
  EXPECT_EQ(normalize(with_nul, NormalForm::nfc), std::string("a\0é", 4));
}

// utf8proc alone would take minutes for this.
TEST(Unicode, LongRunsOfMarksAreQuick) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string normal = normalize(text, NormalForm::nfd);
  EXPECT_EQ(normal.size(), text.size());
  EXPECT_TRUE(normal.starts_with("a\u0323\u0323\u0323"));
}

TEST(Unicode, YoungCharactersAreMatchedThroughOlderOnes) {
  EXPECT_EQ(with_older_characters("plain é 你 👍"), "");
  const std::string text = "a\U0001FAE8b\U000322BA";  // an emoji and an ideograph of Unicode 15
  const std::string older = with_older_characters(text);
  EXPECT_EQ(older.size(), text.size());
  EXPECT_NE(older, text);
  EXPECT_EQ(older.front(), 'a');
}

TEST(Unicode, ByteAlphabetIsOneToOne) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += byte_level_character(static_cast<unsigned char>(byte));
  const auto bytes = byte_level_bytes(all);
  ASSERT_TRUE(bytes.has_value());
  ASSERT_EQ(bytes->size(), 256u);
  for (int byte = 0; byte < 256; ++byte) {
    ASSERT_EQ(static_cast<unsigned char>((*bytes)[static_cast<size_t>(byte)]), byte);
  }
  EXPECT_FALSE(byte_level_bytes("a b").has_value());
  EXPECT_FALSE(byte_level_bytes("▁").has_value());
}

}  // namespace
}  // namespace sluice::text
