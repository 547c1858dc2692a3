#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "text/unicode.h"

namespace sluice::text {
namespace {

// Tokens with given bytes; the last is special.
class FakeTokenizer final : public Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}

  std::vector<int32_t> encode(std::string_view, bool) const override { return {}; }
  std::string_view token_bytes(int32_t id) const override {
    return id >= 0 && id < vocab_size() ? std::string_view(tokens_[static_cast<size_t>(id)])
                                        : std::string_view();
  }
  bool is_special(int32_t id) const override { return id == vocab_size() - 1; }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string bytes;
    for (const int32_t id : ids) {
      if (!skip_special || !is_special(id)) bytes += token_bytes(id);
    }
    std::string text;
    append_valid_utf8(text, bytes, true);
    return text;
  }
  int vocab_size() const override { return static_cast<int>(tokens_.size()); }
  std::span<const int32_t> prefix_ids() const override { return {}; }
  std::span<const int32_t> suffix_ids() const override { return {}; }

 private:
  std::vector<std::string> tokens_;
};

FakeTokenizer make() {
  return FakeTokenizer({"a", "é", "\xE4", "\xBD", "\xA0", "\xF0\x9F", "\x91", "\x8D", "\xFF", "x\xE4\xBD",
                        "\xA0\xF0", "", "\xED", "\x80", "<end>"});
}

TEST(Detokenizer, PiecesEqualTheWholeForRandomIds) {
  const FakeTokenizer tokenizer = make();
  std::mt19937 random(5);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<int32_t> ids;
    for (size_t n = random() % 12; n > 0; --n) ids.push_back(static_cast<int32_t>(random() % 16) - 1);
    const bool skip = random() % 2 == 0;
    Detokenizer detokenizer(tokenizer, skip);
    std::string text;
    for (const int32_t id : ids) {
      const std::string piece = detokenizer.feed(id);
      ASSERT_TRUE(is_valid_utf8(piece));
      text += piece;
    }
    text += detokenizer.finish();
    ASSERT_EQ(text, tokenizer.decode(ids, skip));
  }
}

TEST(Detokenizer, HoldsBackHalfACharacterAndNoMore) {
  const FakeTokenizer tokenizer = make();
  Detokenizer detokenizer(tokenizer, false);
  EXPECT_EQ(detokenizer.feed(2), "");
  EXPECT_EQ(detokenizer.feed(3), "");
  EXPECT_EQ(detokenizer.feed(4), "你");
  EXPECT_EQ(detokenizer.feed(9), "x");
  EXPECT_EQ(detokenizer.feed(0), "\uFFFDa");
  EXPECT_EQ(detokenizer.feed(8), "\uFFFD");
  EXPECT_EQ(detokenizer.feed(5), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
}

}  // namespace
}  // namespace sluice::text
