#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "test_files.h"
#include "text/detokenizer.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

std::unique_ptr<Tokenizer> base_tokenizer(const nlohmann::json& patch = nlohmann::json::object()) {
  auto file = nlohmann::json::parse(read_text(data_path("base_tokenizer.json")));
  file.merge_patch(patch);
  const TemporaryFolder folder;
  auto tokenizer = Tokenizer::load(folder.write("tokenizer.json", file.dump()));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

std::string random_bytes(std::mt19937& random, size_t most) {
  std::string bytes;
  for (size_t n = random() % most; n > 0; --n) bytes += static_cast<char>(random());
  return bytes;
}

std::string random_text(std::mt19937& random, size_t most) {
  std::string text;
  for (size_t n = random() % most; n > 0; --n) {
    auto point = static_cast<char32_t>(random() % 3 == 0 ? random() % 0x110000 : random() % 0x250);
    if (point >= 0xD800 && point < 0xE000) point = ' ';
    append_code_point(text, point);
  }
  return text;
}

TEST(Tokenizer, AnyBytesDecodeToTheirRepairedText) {
  const auto tokenizer = base_tokenizer({{"normalizer", nullptr}});
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::string bytes = random_bytes(random, 40);
    std::string repaired;
    append_valid_utf8(repaired, bytes, true);
    const auto ids = tokenizer->encode(bytes);
    ASSERT_EQ(tokenizer->decode(ids, false), repaired);
    ASSERT_EQ(ids, tokenizer->encode(repaired));
  }
}

TEST(Tokenizer, DecodeOfEncodeIsTheTextInNfc) {
  const auto tokenizer = base_tokenizer();
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = normalize(random_text(random, 40), NormalForm::nfc);
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text), false), text);
  }
}

TEST(Tokenizer, SpecialTokensOnRequest) {
  const auto tokenizer = base_tokenizer();
  const int end = tokenizer->vocab_size() - 3;
  ASSERT_EQ(tokenizer->token_bytes(end), "<|end|>");
  EXPECT_TRUE(tokenizer->is_special(end));
  EXPECT_FALSE(tokenizer->is_special(end + 2));  // <tool>
  EXPECT_FALSE(tokenizer->is_special(-1));
  EXPECT_FALSE(tokenizer->is_special(end + 3));
  EXPECT_EQ(tokenizer->token_bytes(-5), "");
  EXPECT_EQ(tokenizer->token_bytes(1 << 30), "");

  const auto parsed = tokenizer->encode("a<|end|><tool>");
  EXPECT_EQ(parsed, (std::vector<int32_t>{'a', end, end + 2}));
  const auto plain = tokenizer->encode("a<|end|><tool>", false);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), end), 0);
  EXPECT_EQ(plain.back(), end + 2);
  EXPECT_EQ(tokenizer->decode(plain, true), "a<|end|><tool>");
  EXPECT_EQ(tokenizer->decode(parsed, true), "a<tool>");
  EXPECT_EQ(tokenizer->decode(parsed, false), "a<|end|><tool>");
}

TEST(Tokenizer, PostProcessorsTokensAreKnownButNotEncoded) {
  const int end = base_tokenizer()->vocab_size() - 3;
  const auto special = [&](int id, const char* name) {
    return nlohmann::json{{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  const nlohmann::json post = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single",
          {{{"SpecialToken", {{"id", "S"}, {"type_id", 0}}}},
           {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
           {{"SpecialToken", {{"id", "E"}, {"type_id", 0}}}}}},
         {"special_tokens", {{"S", special(end + 1, "S")}, {"E", special(end, "E")}}}}}}};
  const auto tokenizer = base_tokenizer({{"post_processor", post}});
  ASSERT_EQ(tokenizer->prefix_ids().size(), 1u);
  EXPECT_EQ(tokenizer->prefix_ids()[0], end + 1);
  ASSERT_EQ(tokenizer->suffix_ids().size(), 1u);
  EXPECT_EQ(tokenizer->suffix_ids()[0], end);
  EXPECT_EQ(tokenizer->encode("a"), std::vector<int32_t>{'a'});
}

// Quadratic work would take minutes here.
TEST(Tokenizer, LongTextsWithoutBreaksAreQuick) {
  const auto tokenizer = base_tokenizer();
  for (const std::string unit : {"a", " ", "\n", "1", "-", "er", "\u0301\u0323", "你", "A"}) {
    std::string text;
    while (text.size() < 300'000) text += unit;
    const auto ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(ids, false).size(), normalize(text, NormalForm::nfc).size()) << unit;
  }
}

TEST(Tokenizer, ManyThreadsGiveOneAnswer) {
  const auto tokenizer = base_tokenizer();
  std::mt19937 random(4);
  std::vector<std::string> texts;
  for (int i = 0; i < 100; ++i) texts.push_back("The river ran under the mill " + random_text(random, 30));
  const auto fresh = base_tokenizer();
  std::vector<std::vector<int32_t>> expected;
  for (const std::string& text : texts) expected.push_back(fresh->encode(text));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts.size(); ++i) {
        const size_t at = (i * 7 + t * 13) % texts.size();
        if (tokenizer->encode(texts[at]) != expected[at]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tokenizer, DemoModelsReference) {
  const auto model = demo_model();
  if (!model) GTEST_SKIP() << "no demo model: set SLUICE_SHARED";
  const auto tokenizer = Tokenizer::load(*model + "/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto reference = nlohmann::json::parse(read_text(*model + "/reference.json"));
  size_t compared = 0;
  for (const auto& entry : reference.is_array() ? reference : reference["cases"]) {
    EXPECT_EQ((*tokenizer)->encode(entry["prompt"].get<std::string>()),
              entry["input_ids"].get<std::vector<int32_t>>());
    const auto greedy = entry["greedy"].get<std::vector<int32_t>>();
    EXPECT_EQ((*tokenizer)->decode(greedy, true), entry["greedy_text"].get<std::string>());
    Detokenizer detokenizer(**tokenizer, true);
    std::string text;
    for (const int32_t id : greedy) text += detokenizer.feed(id);
    EXPECT_EQ(text + detokenizer.finish(), entry["greedy_text"].get<std::string>());
    ++compared;
  }
  EXPECT_GE(compared, 6u);
}

}  // namespace
}  // namespace sluice::text
