#include "text/vocabulary.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "text/byte_level.h"
#include "text/json_fields.h"

namespace sluice::text {
namespace {

// The two halves of a merge: "a b", or ["a", "b"].
struct Halves {
  std::string_view left, right;
};

std::optional<Halves> merge_halves(const nlohmann::json& merge) {
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) return {};
    return Halves{text.substr(0, space), text.substr(space + 1)};
  }
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return Halves{merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  return {};
}

Status refuse_unsupported(const nlohmann::json& model) {
  const nlohmann::json& type = field_or_null(model, "type");
  if (!type.is_null() && type != "BPE") {
    return unimplemented(fmt::format("model.type is {}; Sluice has \"BPE\"", shown(type)));
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    SLUICE_ASSIGN_OR_RETURN(const std::string value, optional_string(model, name, "model"));
    if (!value.empty()) {
      return unimplemented(fmt::format("model.{} is '{}'; only an empty one is supported", name, value));
    }
  }
  const nlohmann::json& dropout = field_or_null(model, "dropout");
  if (!dropout.is_null() && dropout != 0) {
    return unimplemented(
        fmt::format("model.dropout is {}; serving needs null (it makes ids random)", shown(dropout)));
  }
  return {};
}

}  // namespace

Result<Vocabulary> Vocabulary::parse(const nlohmann::json& model) {
  SLUICE_RETURN_IF_ERROR(require_object(model, "model"));
  SLUICE_RETURN_IF_ERROR(refuse_unsupported(model));
  const nlohmann::json& entries = field_or_null(model, "vocab");
  if (!entries.is_object() || entries.empty()) {
    return invalid_argument(
        fmt::format("model.vocab is {}; it must be an object of tokens and ids", shown(entries)));
  }
  Vocabulary vocabulary;
  vocabulary.ids_.reserve(entries.size());
  for (const auto& [token, value] : entries.get_ref<const nlohmann::json::object_t&>()) {
    Status status;
    if (const Result<int32_t> id = token_id(value, "its id"); !id.ok()) {
      status = id.status();
    } else {
      status = vocabulary.add(token, *id);
      vocabulary.ids_.emplace(token, *id);
    }
    if (!status.ok()) return status.with_context(fmt::format("model.vocab['{}']", token));
  }
  return vocabulary;
}

Status Vocabulary::add(const std::string& token, int32_t id) {
  if (const int32_t known = find(token); known >= 0 && known != id) {
    return invalid_argument(fmt::format("'{}' has the id {}, but model.vocab gives it {}", token, id, known));
  }
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) {
    tokens_.resize(index + 1);
    taken_.resize(index + 1);
  }
  if (taken_[index] && tokens_[index] != token) {
    return invalid_argument(fmt::format("'{}' has the id {}, which '{}' has too", token, id, tokens_[index]));
  }
  taken_[index] = true;
  tokens_[index] = token;
  return {};
}

int32_t Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

std::vector<std::string> Vocabulary::token_bytes() const {
  std::vector<std::string> bytes;
  bytes.reserve(tokens_.size());
  for (const std::string& token : tokens_) bytes.push_back(byte_level_bytes(token).value_or(token));
  return bytes;
}

Result<MergeTable> Vocabulary::parse_merges(const nlohmann::json& merges) const {
  if (!merges.is_array()) {
    return invalid_argument(fmt::format("model.merges is {}; it must be an array", shown(merges)));
  }
  MergeTable table(merges.size());
  std::string whole;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::optional<Halves> halves = merge_halves(merges[i]);
    if (!halves) {
      return invalid_argument(fmt::format("{} is {}; it must be \"a b\" or [\"a\", \"b\"]",
                                          item_path("model.merges", i), shown(merges[i])));
    }
    whole.assign(halves->left).append(halves->right);
    const int32_t left = find(halves->left);
    const int32_t right = find(halves->right);
    const int32_t merged = find(whole);
    if (left < 0 || right < 0 || merged < 0) {
      const std::string_view missing = left < 0 ? halves->left : right < 0 ? halves->right : whole;
      return invalid_argument(fmt::format("{} is {}, but '{}' is not in model.vocab",
                                          item_path("model.merges", i), shown(merges[i]), missing));
    }
    table.set(left, right, {static_cast<uint32_t>(i), merged});
  }
  return table;
}

std::vector<int32_t> Vocabulary::symbols_of_byte(unsigned char byte, bool byte_fallback) const {
  const std::string_view character = byte_level_character(byte);
  if (const int32_t id = find(character); id >= 0) return {id};
  std::vector<int32_t> symbols;
  if (!byte_fallback) return symbols;
  for (const char c : character) {
    const int32_t id = find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c)));
    if (id < 0) return {};
    symbols.push_back(id);
  }
  return symbols;
}

Result<Bpe::Settings> Vocabulary::parse_settings(const nlohmann::json& model) const {
  Bpe::Settings settings;
  SLUICE_ASSIGN_OR_RETURN(settings.ignore_merges, optional_bool(model, "ignore_merges", false, "model"));
  SLUICE_ASSIGN_OR_RETURN(settings.fuse_unknown, optional_bool(model, "fuse_unk", false, "model"));
  SLUICE_ASSIGN_OR_RETURN(const bool byte_fallback, optional_bool(model, "byte_fallback", false, "model"));
  bool complete = true;
  for (unsigned byte = 0; byte < 256; ++byte) {
    settings.byte_symbols.push_back(symbols_of_byte(static_cast<unsigned char>(byte), byte_fallback));
    complete = complete && !settings.byte_symbols.back().empty();
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string unknown, optional_string(model, "unk_token", "model"));
  settings.unknown = unknown.empty() ? -1 : find(unknown);
  if (!complete && !unknown.empty() && settings.unknown < 0) {
    return invalid_argument(fmt::format("model.unk_token is '{}', which is not in model.vocab", unknown));
  }
  return settings;
}

Result<std::unique_ptr<Bpe>> Vocabulary::make_bpe(const nlohmann::json& model,
                                                  const std::vector<std::string>& bytes) const {
  SLUICE_ASSIGN_OR_RETURN(Bpe::Settings settings, parse_settings(model));
  SLUICE_ASSIGN_OR_RETURN(MergeTable merges, parse_merges(field_or_null(model, "merges")));
  std::unordered_map<std::string_view, int32_t> words;
  words.reserve(ids_.size());
  for (const auto& [token, id] : ids_) {
    // Words are bytes in the alphabet: a token with other characters is never one.
    if (byte_level_bytes(token)) words.emplace(bytes[static_cast<size_t>(id)], id);
  }
  return std::make_unique<Bpe>(std::move(settings), std::move(merges), std::move(words), bytes.size());
}

}  // namespace sluice::text
