// The "model" of a tokenizer.json: the vocabulary and the merges of a BPE.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/bpe.h"

namespace sluice::text {

class Vocabulary {
 public:
  // Reads model.vocab; refuses ids that are negative, huge or given twice.
  static Result<Vocabulary> parse(const nlohmann::json& model);

  // An added token: it may be in the vocabulary already, under the same id.
  Status add(const std::string& token, int32_t id);

  // By id, what each token stands for: bytes in the byte-level alphabet, else the token's own text.
  std::vector<std::string> token_bytes() const;

  // Reads the rest of the model. `bytes` is token_bytes() at the place where it will stay.
  Result<std::unique_ptr<Bpe>> make_bpe(const nlohmann::json& model,
                                        const std::vector<std::string>& bytes) const;

 private:
  // The id of a token of model.vocab, -1 where there is none.
  int32_t find(std::string_view token) const;
  Result<MergeTable> parse_merges(const nlohmann::json& merges) const;
  Result<Bpe::Settings> parse_settings(const nlohmann::json& model) const;
  std::vector<int32_t> symbols_of_byte(unsigned char byte, bool byte_fallback) const;

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view token) const { return std::hash<std::string_view>()(token); }
  };

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;  // model.vocab
  std::vector<std::string> tokens_;                                      // by id, added ones included
  std::vector<bool> taken_;                                              // by id
};

}  // namespace sluice::text
