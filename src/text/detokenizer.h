// Text of a growing sequence of tokens, piece by piece: never half a character, never a changed mind. The
// pieces put together equal Tokenizer::decode of all tokens.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace sluice::text {

class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that this token completes; empty while a character is unfinished. Bytes that can no longer
  // become valid UTF-8 come out as U+FFFD at once.
  std::string feed(int32_t id);
  // What is still held back, as U+FFFD. Call once, at the end.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;  // an unfinished character: at most 3 bytes
};

}  // namespace sluice::text
