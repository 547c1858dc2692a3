#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace sluice::text {
namespace {

// Where the character before `at` begins.
size_t previous_character(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool word_touches(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    size_t at = previous_character(text, begin);
    if (is_word_character(next_code_point(text, at))) return true;
  }
  return end < text.size() && is_word_character(next_code_point(text, end));
}

size_t skip_space_back(std::string_view text, size_t begin, size_t lowest) {
  while (begin > lowest) {
    const size_t before = previous_character(text, begin);
    size_t at = before;
    if (!is_white_space(next_code_point(text, at))) break;
    begin = before;
  }
  return begin;
}

size_t skip_space(std::string_view text, size_t end) {
  while (end < text.size()) {
    size_t at = end;
    if (!is_white_space(next_code_point(text, at))) break;
    end = at;
  }
  return end;
}

}  // namespace

void AddedTokenFinder::add(const AddedToken& token, std::string_view matched_text) {
  if (matched_text.empty()) return;
  uint32_t node = 0;
  for (const char c : matched_text) {
    const uint64_t key = uint64_t{node} << 8 | static_cast<unsigned char>(c);
    const auto [edge, added] = edges_.try_emplace(key, static_cast<uint32_t>(ends_.size()));
    if (added) ends_.push_back(-1);
    node = edge->second;
  }
  if (ends_[node] >= 0) return;
  ends_[node] = static_cast<int32_t>(tokens_.size());
  starts_[static_cast<unsigned char>(matched_text.front())] = true;
  tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip, token.special});
}

std::pair<int32_t, size_t> AddedTokenFinder::longest_at(std::string_view text, size_t at) const {
  std::pair<int32_t, size_t> best{-1, 0};
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (ends_[node] >= 0) best = {ends_[node], i + 1 - at};
  }
  return best;
}

std::vector<AddedTokenFinder::Piece> AddedTokenFinder::split(std::string_view valid, bool special) const {
  std::vector<Piece> pieces;
  size_t done = 0;  // everything before is in `pieces`
  size_t at = 0;
  while (at < valid.size()) {
    if (!starts_[static_cast<unsigned char>(valid[at])]) {
      ++at;
      continue;
    }
    const auto [index, length] = longest_at(valid, at);
    if (index < 0) {
      ++at;
      continue;
    }
    // A token that is found but refused still takes its text out of the search, as in the tokenizers library.
    const Flags& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at;
    size_t end = at + length;
    at = end;
    if (token.special && !special) continue;
    if (token.single_word && word_touches(valid, begin, end)) continue;
    if (token.lstrip) begin = skip_space_back(valid, begin, std::min(done, begin));
    if (token.rstrip) end = skip_space(valid, end);
    if (begin > done) pieces.push_back({valid.substr(done, begin - done), -1});
    pieces.push_back({valid.substr(begin, end - begin), token.id});
    done = std::max(done, end);
  }
  if (done < valid.size()) pieces.push_back({valid.substr(done), -1});
  return pieces;
}

}  // namespace sluice::text
