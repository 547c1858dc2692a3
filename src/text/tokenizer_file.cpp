#include "text/tokenizer_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/json_fields.h"
#include "text/post_processor.h"
#include "text/vocabulary.h"

namespace sluice::text {
namespace {

Result<AddedToken> parse_added_token(const nlohmann::json& spec, const std::string& where) {
  SLUICE_RETURN_IF_ERROR(require_object(spec, where));
  AddedToken token;
  SLUICE_ASSIGN_OR_RETURN(token.id, token_id(field_or_null(spec, "id"), field_path(where, "id")));
  SLUICE_ASSIGN_OR_RETURN(token.content, required_string(spec, "content", where));
  SLUICE_ASSIGN_OR_RETURN(token.single_word, optional_bool(spec, "single_word", false, where));
  SLUICE_ASSIGN_OR_RETURN(token.lstrip, optional_bool(spec, "lstrip", false, where));
  SLUICE_ASSIGN_OR_RETURN(token.rstrip, optional_bool(spec, "rstrip", false, where));
  SLUICE_ASSIGN_OR_RETURN(token.special, optional_bool(spec, "special", false, where));
  SLUICE_ASSIGN_OR_RETURN(token.normalized, optional_bool(spec, "normalized", !token.special, where));
  return token;
}

Result<std::vector<AddedToken>> parse_added_tokens(const nlohmann::json& file) {
  std::vector<AddedToken> tokens;
  const nlohmann::json& list = field_or_null(file, "added_tokens");
  if (list.is_null()) return tokens;
  if (!list.is_array()) {
    return invalid_argument(fmt::format("added_tokens is {}; it must be an array", shown(list)));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(AddedToken token, parse_added_token(list[i], item_path("added_tokens", i)));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

Status require_byte_level_decoder(const nlohmann::json& decoder) {
  SLUICE_RETURN_IF_ERROR(require_object(decoder, "decoder"));
  SLUICE_ASSIGN_OR_RETURN(const std::string type, required_string(decoder, "type", "decoder"));
  if (type == "ByteLevel") return {};
  return unimplemented(fmt::format("decoder.type is '{}'; Sluice has ByteLevel", type));
}

}  // namespace

Result<TokenizerParts> parse_tokenizer(const nlohmann::json& file) {
  SLUICE_RETURN_IF_ERROR(require_object(file, ""));
  TokenizerParts parts;
  SLUICE_ASSIGN_OR_RETURN(parts.normalizer, Normalizer::parse(field_or_null(file, "normalizer")));
  SLUICE_ASSIGN_OR_RETURN(PreTokenizer pre, PreTokenizer::parse(field_or_null(file, "pre_tokenizer")));
  parts.pre_tokenizer = std::make_unique<PreTokenizer>(std::move(pre));
  SLUICE_RETURN_IF_ERROR(require_byte_level_decoder(field_or_null(file, "decoder")));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<AddedToken> added, parse_added_tokens(file));

  SLUICE_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::parse(field_or_null(file, "model")));
  for (size_t i = 0; i < added.size(); ++i) {
    const Status status = vocabulary.add(added[i].content, added[i].id);
    if (!status.ok()) return status.with_context(item_path("added_tokens", i));
  }
  parts.token_bytes = vocabulary.token_bytes();
  parts.special.resize(parts.token_bytes.size());
  for (const AddedToken& token : added) {
    if (token.special) parts.special[static_cast<size_t>(token.id)] = true;
    if (token.normalized) {
      parts.normalized_tokens.add(token, parts.normalizer.apply(token.content));
    } else {
      parts.raw_tokens.add(token, token.content);
    }
  }
  SLUICE_ASSIGN_OR_RETURN(parts.bpe, vocabulary.make_bpe(field_or_null(file, "model"), parts.token_bytes));

  SLUICE_ASSIGN_OR_RETURN(PostProcessor post,
                          parse_post_processor(field_or_null(file, "post_processor"),
                                               static_cast<int32_t>(parts.token_bytes.size())));
  parts.prefix_ids = std::move(post.prefix);
  parts.suffix_ids = std::move(post.suffix);
  return parts;
}

}  // namespace sluice::text
