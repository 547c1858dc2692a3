#include "text/json_fields.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace sluice::text {

std::string field_path(std::string_view where, std::string_view name) {
  return where.empty() ? std::string(name) : fmt::format("{}.{}", where, name);
}

std::string item_path(std::string_view where, size_t index) { return fmt::format("{}[{}]", where, index); }

std::string shown(const nlohmann::json& value) {
  constexpr size_t kMaxShown = 60;
  if (value.is_object()) return fmt::format("an object of {} fields", value.size());
  if (value.is_array()) return fmt::format("an array of {} items", value.size());
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

const nlohmann::json& field_or_null(const nlohmann::json& object, std::string_view name) {
  static const nlohmann::json null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

Status require_object(const nlohmann::json& value, std::string_view where) {
  if (value.is_object()) return {};
  return invalid_argument(
      fmt::format("{} is {}; it must be an object", where.empty() ? "the file" : where, shown(value)));
}

Result<std::string> required_string(const nlohmann::json& object, std::string_view name,
                                    std::string_view where) {
  const nlohmann::json& value = field_or_null(object, name);
  if (!value.is_string()) {
    return invalid_argument(
        fmt::format("{} is {}; it must be a string", field_path(where, name), shown(value)));
  }
  return value.get<std::string>();
}

Result<std::string> optional_string(const nlohmann::json& object, std::string_view name,
                                    std::string_view where) {
  if (field_or_null(object, name).is_null()) return std::string();
  return required_string(object, name, where);
}

Result<bool> optional_bool(const nlohmann::json& object, std::string_view name, bool absent,
                           std::string_view where) {
  const nlohmann::json& value = field_or_null(object, name);
  if (value.is_null()) return absent;
  if (!value.is_boolean()) {
    return invalid_argument(
        fmt::format("{} is {}; it must be true or false", field_path(where, name), shown(value)));
  }
  return value.get<bool>();
}

Result<int32_t> token_id(const nlohmann::json& value, std::string_view where) {
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= kMaxTokenId
                                               : value.is_number_integer() && value.get<int64_t>() >= 0 &&
                                                     value.get<int64_t>() <= kMaxTokenId;
  if (!fits) {
    return invalid_argument(
        fmt::format("{} is {}; a token id is an integer from 0 to {}", where, shown(value), kMaxTokenId));
  }
  return value.get<int32_t>();
}

}  // namespace sluice::text
