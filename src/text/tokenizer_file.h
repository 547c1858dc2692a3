// What a tokenizer.json says, checked: the parts from which a Tokenizer is made.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace sluice::text {

struct TokenizerParts {
  std::vector<std::string> token_bytes;  // by id; empty for ids that nothing has
  std::vector<bool> special;             // by id
  Normalizer normalizer;
  AddedTokenFinder raw_tokens;         // looked for in the text as it came
  AddedTokenFinder normalized_tokens;  // looked for behind the normalizer
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<Bpe> bpe;
  std::vector<int32_t> prefix_ids;  // what the post-processor puts around a text
  std::vector<int32_t> suffix_ids;
};

Result<TokenizerParts> parse_tokenizer(const nlohmann::json& file);

}  // namespace sluice::text
