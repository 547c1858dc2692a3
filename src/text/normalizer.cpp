#include "text/normalizer.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "text/json_fields.h"

namespace sluice::text {

Result<Normalizer> Normalizer::parse(const nlohmann::json& spec) {
  Normalizer normalizer;
  if (!spec.is_null()) SLUICE_RETURN_IF_ERROR(normalizer.add(spec, "normalizer", 0));
  return normalizer;
}

Status Normalizer::add(const nlohmann::json& spec, const std::string& where, int depth) {
  constexpr int kMaxDepth = 8;
  SLUICE_RETURN_IF_ERROR(require_object(spec, where));
  SLUICE_ASSIGN_OR_RETURN(const std::string type, required_string(spec, "type", where));
  if (type == "Sequence") {
    const nlohmann::json& items = field_or_null(spec, "normalizers");
    if (!items.is_array() || depth == kMaxDepth) {
      return invalid_argument(fmt::format("{}.normalizers is {}; it must be an array, nested at most {} deep",
                                          where, shown(items), kMaxDepth));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      SLUICE_RETURN_IF_ERROR(add(items[i], item_path(where + ".normalizers", i), depth + 1));
    }
    return {};
  }
  if (type == "NFC") {
    forms_.push_back(NormalForm::nfc);
  } else if (type == "NFD") {
    forms_.push_back(NormalForm::nfd);
  } else if (type == "NFKC") {
    forms_.push_back(NormalForm::nfkc);
  } else if (type == "NFKD") {
    forms_.push_back(NormalForm::nfkd);
  } else {
    return unimplemented(fmt::format(
        "{}.type is '{}'; Sluice has NFC, NFD, NFKC, NFKD and Sequence (byte-level BPE)", where, type));
  }
  return {};
}

std::string Normalizer::apply(std::string_view valid) const {
  std::string text(valid);
  for (const NormalForm form : forms_) text = normalize(text, form);
  return text;
}

}  // namespace sluice::text
