#include "text/detokenizer.h"

#include "text/unicode.h"

namespace sluice::text {

std::string Detokenizer::feed(int32_t id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  pending_ += tokenizer_.token_bytes(id);
  std::string text;
  pending_.erase(0, append_valid_utf8(text, pending_, false));
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  append_valid_utf8(text, pending_, true);
  pending_.clear();
  return text;
}

}  // namespace sluice::text
