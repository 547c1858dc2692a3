// Finds the added tokens of a tokenizer.json (such as <|im_end|>) in text, before the rest is split and
// merged: the leftmost match, and of those at one place the longest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sluice::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = true;    // is looked for in the normalised text, in its own normal form
  bool special = false;
};

class AddedTokenFinder {
 public:
  // A stretch of text: ordinary (id < 0) or an added token.
  struct Piece {
    std::string_view text;
    int32_t id;
  };

  // `matched_text` is the content, normalised where the token asks for it. Of two tokens with the same text
  // the first wins. Empty texts are ignored.
  void add(const AddedToken& token, std::string_view matched_text);

  // Without `special`, special tokens are left in the ordinary text.
  std::vector<Piece> split(std::string_view valid, bool special) const;

 private:
  struct Flags {
    int32_t id;
    bool single_word, lstrip, rstrip, special;
  };

  // The longest token that starts at `at`: index into tokens_ or -1, and its length.
  std::pair<int32_t, size_t> longest_at(std::string_view text, size_t at) const;

  // A trie over bytes: (node << 8 | byte) -> node. Node 0 is the root.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> ends_{-1};  // per node: the token that ends here
  std::array<bool, 256> starts_{};
  std::vector<Flags> tokens_;
};

}  // namespace sluice::text
