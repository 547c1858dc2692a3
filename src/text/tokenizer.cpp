#include "text/tokenizer.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "text/tokenizer_file.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {}

  std::vector<int32_t> encode(std::string_view text, bool parse_special) const override {
    std::string repaired;
    if (!is_valid_utf8(text)) {
      append_valid_utf8(repaired, text, true);
      text = repaired;
    }
    std::vector<int32_t> ids;
    Bpe::Scratch scratch;
    for (const auto& piece : parts_.raw_tokens.split(text, parse_special)) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else {
        encode_piece(piece.text, parse_special, ids, scratch);
      }
    }
    return ids;
  }

  std::string_view token_bytes(int32_t id) const override {
    return known(id) ? std::string_view(parts_.token_bytes[static_cast<size_t>(id)]) : std::string_view();
  }

  bool is_special(int32_t id) const override { return known(id) && parts_.special[static_cast<size_t>(id)]; }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string bytes;
    for (const int32_t id : ids) {
      if (!skip_special || !is_special(id)) bytes += token_bytes(id);
    }
    std::string text;
    append_valid_utf8(text, bytes, true);
    return text;
  }

  int vocab_size() const override { return static_cast<int>(parts_.token_bytes.size()); }
  std::span<const int32_t> prefix_ids() const override { return parts_.prefix_ids; }
  std::span<const int32_t> suffix_ids() const override { return parts_.suffix_ids; }

 private:
  bool known(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < parts_.token_bytes.size(); }

  // Text between the tokens that are looked for before the normalizer.
  void encode_piece(std::string_view text, bool parse_special, std::vector<int32_t>& ids,
                    Bpe::Scratch& scratch) const {
    const std::string normalized = parts_.normalizer.apply(text);
    for (const auto& piece : parts_.normalized_tokens.split(normalized, parse_special)) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
        continue;
      }
      std::string owned(piece.text);
      for (const std::string_view word : parts_.pre_tokenizer->split(owned)) {
        parts_.bpe->encode(word, ids, scratch);
      }
    }
  }

  TokenizerParts parts_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const nlohmann::json file, read_json_file(path));
  auto parts = parse_tokenizer(file);
  if (!parts.ok()) return parts.status().with_context(path);
  return std::unique_ptr<Tokenizer>(std::make_unique<BpeTokenizer>(std::move(parts).value()));
}

}  // namespace sluice::text
