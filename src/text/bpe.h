// Byte-pair encoding of one word: its symbols merged two by two, always the pair of lowest rank and of those
// the leftmost, in O(n log n).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sluice::text {

// (left id, right id) -> merge. Open addressing: one cache line a look-up, which is most of encoding's time.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;  // of the merged token
  };

  explicit MergeTable(size_t merges);
  // A pair given twice keeps the later rank.
  void set(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  size_t slot_of(uint64_t key) const;

  std::vector<Slot> slots_;
  int shift_;
};

class Bpe {
 public:
  struct Settings {
    // For each byte, the symbols that it starts as: usually one, none where the vocabulary lacks it.
    std::vector<std::vector<int32_t>> byte_symbols;
    // A byte without symbols becomes this, -1 for dropping it; neighbours are one when fused.
    int32_t unknown = -1;
    bool fuse_unknown = false;
    // A word that is a token itself is that token, whatever the merges say.
    bool ignore_merges = false;
  };

  // `words` has the bytes of every token that a word can be; views must outlive this.
  Bpe(Settings settings, MergeTable merges, std::unordered_map<std::string_view, int32_t> words,
      size_t vocabulary);

  // Buffers that one caller reuses from word to word.
  struct Scratch {
    struct Symbol {
      int32_t id;
      int32_t previous, next;  // indices, -1 at the ends; id -1 once merged away
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> queue;
  };

  // Appends the ids of one word. Thread-safe with one Scratch a thread.
  void encode(std::string_view word, std::vector<int32_t>& ids, Scratch& scratch) const;

 private:
  void start_symbols(std::string_view word, Scratch& scratch) const;
  void merge_all(Scratch& scratch) const;

  Settings settings_;
  MergeTable merges_;
  std::unordered_map<std::string_view, int32_t> words_;
  // Per token: whether its own bytes, as a word, merge into it alone. Found out when first asked. Most words
  // of real text are such tokens, so this saves most of the merging without a cache that grows.
  enum : uint8_t { kNotTried, kWhole, kSplits };
  std::unique_ptr<std::atomic<uint8_t>[]> whole_;
};

}  // namespace sluice::text
