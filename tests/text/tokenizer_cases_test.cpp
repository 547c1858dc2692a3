// Texts and their ids as the tokenizers library gives them (tests/data/text/generate/README.md).
#include <gtest/gtest.h>

#include "test_files.h"
#include "text/tokenizer.h"

namespace sluice::text {
namespace {

TEST(TokenizerCases, VariantsGiveTheReferenceIds) {
  const auto base = nlohmann::json::parse(read_text(data_path("base_tokenizer.json")));
  const TemporaryFolder folder;
  size_t compared = 0;
  for (const auto& line : read_lines(data_path("tokenizers.jsonl"))) {
    nlohmann::json file = base;
    file.merge_patch(nlohmann::json::parse(line["patch"].dump()));
    const auto tokenizer = Tokenizer::load(folder.write("tokenizer.json", file.dump()));
    ASSERT_TRUE(tokenizer.ok()) << line["name"] << ": " << tokenizer.status().message();
    for (const auto& entry : line["cases"]) {
      const auto text = entry["text"].get<std::string>();
      const auto expected = entry["ids"].get<std::vector<int32_t>>();
      EXPECT_EQ((*tokenizer)->encode(text), expected) << line["name"] << ": " << entry["text"];
      EXPECT_EQ((*tokenizer)->decode(expected, false), entry["decoded"].get<std::string>())
          << line["name"] << ": " << entry["text"];
      ++compared;
    }
  }
  EXPECT_GE(compared, 2000u);
}

TEST(TokenizerCases, DemoModelGivesTheReferenceIds) {
  const auto model = demo_model();
  if (!model) GTEST_SKIP() << "no demo model: set SLUICE_SHARED";
  const auto tokenizer = Tokenizer::load(*model + "/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  for (const auto& entry : read_lines(data_path("demo_ids.jsonl"))) {
    EXPECT_EQ((*tokenizer)->encode(entry["text"].get<std::string>()),
              entry["ids"].get<std::vector<int32_t>>())
        << entry["text"];
  }
}

}  // namespace
}  // namespace sluice::text
