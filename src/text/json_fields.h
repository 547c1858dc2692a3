// Checked access to the fields of a JSON object whose text came from outside. Errors name the field by its
// path and the value found.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice::text {

// `where` is the object's path ("model", "pre_tokenizer.pretokenizers[0]"); empty for the root.
std::string field_path(std::string_view where, std::string_view name);
std::string item_path(std::string_view where, size_t index);
// A short form of a value for an error message.
std::string shown(const nlohmann::json& value);

// The field, or null when it is absent. The object must be one.
const nlohmann::json& field_or_null(const nlohmann::json& object, std::string_view name);
Status require_object(const nlohmann::json& value, std::string_view where);
Result<std::string> required_string(const nlohmann::json& object, std::string_view name,
                                    std::string_view where);
// null counts as absent.
Result<std::string> optional_string(const nlohmann::json& object, std::string_view name,
                                    std::string_view where);
Result<bool> optional_bool(const nlohmann::json& object, std::string_view name, bool absent,
                           std::string_view where);
// A token id: 0 to kMaxTokenId.
constexpr int64_t kMaxTokenId = (1 << 22) - 1;
Result<int32_t> token_id(const nlohmann::json& value, std::string_view where);

}  // namespace sluice::text
