// Malformed files: each is one error that names the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "test_files.h"
#include "text/tokenizer.h"

namespace sluice::text {
namespace {

using nlohmann::json;

// A file with the alphabet a, b and one merge.
json small_file() {
  return json::parse(R"({
    "added_tokens": [{"id": 3, "content": "<end>", "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

std::string error_of(const json& file) {
  const TemporaryFolder folder;
  const auto tokenizer = Tokenizer::load(folder.write("tokenizer.json", file.dump()));
  return tokenizer.ok() ? "" : tokenizer.status().message();
}

std::string error_at(const char* pointer, json value) {
  json file = small_file();
  file[json::json_pointer(pointer)] = std::move(value);
  return error_of(file);
}

TEST(TokenizerFile, TheSmallFileIsGood) {
  EXPECT_EQ(error_of(small_file()), "");
  json file = small_file();
  file.erase("added_tokens");
  file["model"]["merges"] = json::parse(R"([["a", "b"]])");
  EXPECT_EQ(error_of(file), "");
}

TEST(TokenizerFile, EachFaultIsNamed) {
  const struct {
    const char* pointer;
    const char* value;
    const char* error;
  } cases[] = {
      {"/model", "null", "model is null; it must be an object"},
      {"/model/type", "\"Unigram\"", "model.type is \"Unigram\""},
      {"/model/vocab", "[]", "model.vocab is an array of 0 items"},
      {"/model/vocab/a", "-1", "model.vocab['a']: its id is -1"},
      {"/model/vocab/a", "1.5", "its id is 1.5"},
      {"/model/vocab/a", "\"0\"", "its id is \"0\""},
      {"/model/vocab/a", "4194304", "its id is 4194304; a token id is an integer from 0 to 4194303"},
      {"/model/vocab/a", "99999999999999999999", "its id is 1e+20"},
      {"/model/vocab/a", "1", "has the id 1, which"},
      {"/model/merges", "null", "model.merges is null"},
      {"/model/merges/0", "\"ab\"", "model.merges[0] is \"ab\"; it must be \"a b\""},
      {"/model/merges/0", "\"a b c\"", "model.merges[0]"},
      {"/model/merges/0", "[\"a\"]", "model.merges[0]"},
      {"/model/merges/0", "\"a x\"", "'x' is not in model.vocab"},
      {"/model/merges/0", "\"b a\"", "'ba' is not in model.vocab"},
      {"/model/unk_token", "\"?\"", "model.unk_token is '?'"},
      {"/model/dropout", "0.1", "model.dropout is 0.1"},
      {"/model/ignore_merges", "1", "model.ignore_merges is 1; it must be true or false"},
      {"/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix is '</w>'"},
      {"/added_tokens", "{}", "added_tokens is an object"},
      {"/added_tokens/0/id", "0", "added_tokens[0]: '<end>' has the id 0, which 'a' has too"},
      {"/added_tokens/0/content", "\"a\"", "has the id 3, but model.vocab gives it 0"},
      {"/added_tokens/0/content", "7", "added_tokens[0].content is 7; it must be a string"},
      {"/added_tokens/0/special", "\"yes\"", "added_tokens[0].special"},
      {"/normalizer", "{\"type\": \"Lowercase\"}", "normalizer.type is 'Lowercase'"},
      {"/normalizer", "{\"type\": \"Sequence\"}", "normalizer.normalizers is null"},
      {"/pre_tokenizer", "null", "no ByteLevel step"},
      {"/pre_tokenizer/type", "\"Metaspace\"", "pre_tokenizer.type is 'Metaspace'"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})",
       "pre_tokenizer.pattern: regular expression '('"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Gone"})",
       "pre_tokenizer.behavior is 'Gone'"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {}, "behavior": "Isolated"})",
       "pre_tokenizer.pattern"},
      {"/decoder", "null", "decoder is null"},
      {"/decoder/type", "\"WordPiece\"", "decoder.type is 'WordPiece'"},
      {"/post_processor", "{\"type\": \"BertProcessing\"}", "post_processor.type is 'BertProcessing'"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "X"}}]})",
       "post_processor.special_tokens is null"},
      {"/post_processor",
       R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "X"}}], "special_tokens": {"X": {"ids": [9]}}})",
       "post_processor.special_tokens['X'].ids has 9; the vocabulary ends at 3"},
  };
  for (const auto& entry : cases) {
    EXPECT_THAT(error_at(entry.pointer, json::parse(entry.value)), testing::HasSubstr(entry.error))
        << entry.pointer << " = " << entry.value;
  }
}

TEST(TokenizerFile, NotJsonOrNotThere) {
  const TemporaryFolder folder;
  EXPECT_FALSE(Tokenizer::load(folder.path() + "/none.json").ok());
  EXPECT_FALSE(Tokenizer::load(folder.write("empty.json", "")).ok());
  EXPECT_FALSE(Tokenizer::load(folder.write("cut.json", small_file().dump().substr(0, 100))).ok());
  EXPECT_FALSE(Tokenizer::load(folder.write("array.json", "[1]")).ok());
  EXPECT_THAT(error_of(json("text")), testing::HasSubstr("must be an object"));
}

// Any value in any place: an answer, never a crash.
TEST(TokenizerFile, RandomDamageIsAnError) {
  const json values =
      json::parse(R"([null, true, -1, 0, 2, 1e300, "", "a", "(", [], [[]], {}, {"type": "Sequence"}])");
  const json flat = small_file().flatten();
  std::mt19937 random(6);
  for (int round = 0; round < 600; ++round) {
    json file = small_file();
    for (int n = 0; n < 2; ++n) {
      auto place = flat.begin();
      std::advance(place, static_cast<std::ptrdiff_t>(random() % flat.size()));
      json::json_pointer pointer(place.key());
      for (size_t up = random() % 3; up > 0 && !pointer.empty(); --up) pointer.pop_back();
      try {
        file[pointer] = values[random() % values.size()];
      } catch (const json::exception&) {
        continue;  // the place is gone
      }
    }
    const TemporaryFolder folder;
    const auto tokenizer = Tokenizer::load(folder.write("tokenizer.json", file.dump()));
    if (tokenizer.ok()) (*tokenizer)->decode((*tokenizer)->encode("ab<end>é"), false);
  }
}

}  // namespace
}  // namespace sluice::text
