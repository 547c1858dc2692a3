#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace sluice::text {
namespace {

// The definition: merge the leftmost pair of lowest rank until none is left.
std::vector<int32_t> merge_naively(std::vector<int32_t> symbols,
                                   const std::map<std::pair<int32_t, int32_t>, MergeTable::Merge>& merges) {
  while (true) {
    size_t best = symbols.size();
    uint32_t rank = ~0U;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = merges.find({symbols[i], symbols[i + 1]});
      if (found != merges.end() && found->second.rank < rank) {
        rank = found->second.rank;
        best = i;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = merges.at({symbols[best], symbols[best + 1]}).id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

struct RandomBpe {
  static constexpr int kLetters = 4;
  std::vector<std::string> tokens;
  std::map<std::pair<int32_t, int32_t>, MergeTable::Merge> merges;

  // Merges of random pairs in random order, so that several ways lead to one token.
  explicit RandomBpe(std::mt19937& random) {
    for (int i = 0; i < kLetters; ++i) tokens.emplace_back(1, static_cast<char>('a' + i));
    std::map<std::string, int32_t> ids;
    for (size_t i = 0; i < tokens.size(); ++i) ids[tokens[i]] = static_cast<int32_t>(i);
    for (int i = 0; i < 60; ++i) {
      const auto left = static_cast<int32_t>(random() % tokens.size());
      const auto right = static_cast<int32_t>(random() % tokens.size());
      const std::string whole = tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)];
      if (whole.size() > 9) continue;
      const auto [place, added] = ids.try_emplace(whole, static_cast<int32_t>(tokens.size()));
      if (added) tokens.push_back(whole);
      merges.emplace(std::pair(left, right), MergeTable::Merge{0, place->second});
    }
    std::vector<uint32_t> ranks(merges.size());
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<uint32_t>(i);
    std::shuffle(ranks.begin(), ranks.end(), random);
    size_t next = 0;
    for (auto& [pair, merge] : merges) merge.rank = ranks[next++];
  }

  Bpe make(bool ignore_merges) const {
    Bpe::Settings settings;
    settings.ignore_merges = ignore_merges;
    settings.byte_symbols.resize(256);
    for (int i = 0; i < kLetters; ++i) settings.byte_symbols[static_cast<size_t>('a' + i)] = {i};
    MergeTable table(merges.size());
    for (const auto& [pair, merge] : merges) table.set(pair.first, pair.second, merge);
    std::unordered_map<std::string_view, int32_t> words;
    for (size_t i = 0; i < tokens.size(); ++i) words.emplace(tokens[i], static_cast<int32_t>(i));
    return Bpe(std::move(settings), std::move(table), std::move(words), tokens.size());
  }
};

TEST(Bpe, EqualsTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    const RandomBpe model(random);
    const Bpe bpe = model.make(false);
    Bpe::Scratch scratch;
    for (int i = 0; i < 200; ++i) {
      std::string word;
      std::vector<int32_t> symbols;
      for (size_t n = 1 + random() % 20; n > 0; --n) {
        symbols.push_back(static_cast<int32_t>(random() % RandomBpe::kLetters));
        word += static_cast<char>('a' + symbols.back());
      }
      std::vector<int32_t> ids;
      bpe.encode(word, ids, scratch);
      ASSERT_EQ(ids, merge_naively(symbols, model.merges)) << word;
      // Again: what is remembered about the word must not change the answer.
      ids.clear();
      bpe.encode(word, ids, scratch);
      ASSERT_EQ(ids, merge_naively(symbols, model.merges)) << word;
    }
  }
}

TEST(Bpe, IgnoreMergesTakesWholeTokens) {
  std::mt19937 random(3);
  const RandomBpe model(random);
  const Bpe bpe = model.make(true);
  Bpe::Scratch scratch;
  for (size_t i = 0; i < model.tokens.size(); ++i) {
    std::vector<int32_t> ids;
    bpe.encode(model.tokens[i], ids, scratch);
    ASSERT_EQ(ids, std::vector<int32_t>{static_cast<int32_t>(i)});
  }
}

TEST(MergeTable, KeepsTheLaterOfTwoEqualPairs) {
  MergeTable table(3);
  table.set(1, 2, {0, 10});
  table.set(2, 1, {1, 11});
  table.set(1, 2, {2, 10});
  ASSERT_NE(table.find(1, 2), nullptr);
  EXPECT_EQ(table.find(1, 2)->rank, 2u);
  EXPECT_EQ(table.find(2, 1)->id, 11);
  EXPECT_EQ(table.find(3, 3), nullptr);
}

}  // namespace
}  // namespace sluice::text
