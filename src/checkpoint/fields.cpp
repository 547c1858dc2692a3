#include "checkpoint/fields.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace sluice::checkpoint {
namespace {

constexpr size_t kShownBytes = 80;

// The value, when it is an integer that fits.
std::optional<int64_t> as_integer(const nlohmann::json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

}  // namespace

std::string json_text(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

Fields::Fields(const nlohmann::json& object, std::string path, std::string prefix)
    : object_(&object), path_(std::move(path)), prefix_(std::move(prefix)) {}

Status Fields::wrong(const Field& field, const std::string& remedy, Code code) const {
  const std::string state = field.value == nullptr ? "is missing" : "is " + json_text(*field.value);
  return {code, fmt::format("{}: field '{}{}' {}; {}", path_, prefix_, field.name, state, remedy)};
}

Result<Field> Fields::find(Names names) const {
  Field chosen{.name = *names.begin()};
  for (const char* name : names) {
    const auto found = object_->find(name);
    if (found == object_->end() || found->is_null()) continue;
    const Field field{.name = name, .value = &*found};
    if (chosen.value == nullptr) {
      chosen = field;
    } else if (*chosen.value != *field.value) {
      return wrong(field,
                   fmt::format("'{}' is {}: the two must agree", chosen.name, json_text(*chosen.value)));
    }
  }
  return chosen;
}

Result<int> Fields::integer(Names names, int min, int max, std::optional<int> fallback) const {
  SLUICE_ASSIGN_OR_RETURN(const Field field, find(names));
  if (field.value == nullptr && fallback) return *fallback;
  if (field.value != nullptr) {
    const std::optional<int64_t> value = as_integer(*field.value);
    if (value && *value >= min && *value <= max) return static_cast<int>(*value);
  }
  return wrong(field, fmt::format("it must be an integer from {} to {}", min, max));
}

Result<double> Fields::number(Names names, Range range, double fallback) const {
  SLUICE_ASSIGN_OR_RETURN(const Field field, find(names));
  if (field.value == nullptr) return fallback;
  if (field.value->is_number()) {
    const auto value = field.value->get<double>();
    if (value > range.above && value <= range.max) return value;
  }
  return wrong(field, fmt::format("it must be a number above {} and at most {}", range.above, range.max));
}

Result<bool> Fields::boolean(Names names, bool fallback) const {
  SLUICE_ASSIGN_OR_RETURN(const Field field, find(names));
  if (field.value == nullptr) return fallback;
  if (field.value->is_boolean()) return field.value->get<bool>();
  return wrong(field, "it must be true or false");
}

Result<std::string> Fields::text(Names names, const std::string& fallback) const {
  SLUICE_ASSIGN_OR_RETURN(const Field field, find(names));
  if (field.value == nullptr) return fallback;
  if (field.value->is_string()) return field.value->get<std::string>();
  return wrong(field, "it must be a string");
}

Result<std::vector<int32_t>> Fields::integers(Names names, int32_t max) const {
  SLUICE_ASSIGN_OR_RETURN(const Field field, find(names));
  std::vector<int32_t> values;
  if (field.value == nullptr) return values;
  const nlohmann::json list = field.value->is_array() ? *field.value : nlohmann::json::array({*field.value});
  for (const nlohmann::json& entry : list) {
    const std::optional<int64_t> value = as_integer(entry);
    if (!value || *value < 0 || *value > max) {
      return wrong(field, fmt::format("it must be an integer from 0 to {}, or a list of them", max));
    }
    values.push_back(static_cast<int32_t>(*value));
  }
  return values;
}

Result<std::optional<Fields>> Fields::object(Names names) const {
  SLUICE_ASSIGN_OR_RETURN(const Field field, find(names));
  if (field.value == nullptr) return std::optional<Fields>();
  if (!field.value->is_object()) return wrong(field, "it must be an object");
  return std::optional<Fields>(Fields(*field.value, path_, prefix_ + field.name + "."));
}

}  // namespace sluice::checkpoint
