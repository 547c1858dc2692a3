// Byte-level BPE from a Hugging Face tokenizer.json: normalizer (NFC or none), added tokens, pre-tokenizer
// (Split by a regular expression, ByteLevel), merges. Exact on any bytes: what transformers' tokenizers
// library gives, and decode(encode(x)) == x for valid UTF-8 that NFC leaves alone. Bytes that are no UTF-8
// count as U+FFFD, one for each maximal subpart, as in a lossy decode.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::text {

class Tokenizer {
 public:
  // `path` of tokenizer.json. A component that is not supported is refused by name.
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& path);
  virtual ~Tokenizer() = default;

  // Thread-safe. Added tokens in the text (such as <|im_end|>) become their ids when `parse_special` is set,
  // otherwise special ones are encoded as ordinary text.
  virtual std::vector<int32_t> encode(std::string_view text, bool parse_special = true) const = 0;
  // The bytes a token stands for; not always whole characters. Special tokens give their text. An id out of
  // range gives nothing.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  // Bytes of all ids, invalid UTF-8 replaced by U+FFFD.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special) const = 0;
  // One more than the highest id.
  virtual int vocab_size() const = 0;
  // What the file's post-processor puts before and behind a text (begin and end of sequence). encode() leaves
  // them out: completions add them, chat templates write their own.
  virtual std::span<const int32_t> prefix_ids() const = 0;
  virtual std::span<const int32_t> suffix_ids() const = 0;
};

}  // namespace sluice::text
