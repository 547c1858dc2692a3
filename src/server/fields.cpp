#include "server/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sluice::server {
namespace {
constexpr size_t kShownBytes = 60;
}

std::string shown(const nlohmann::ordered_json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  if (value.is_string() && value.get_ref<const std::string&>().size() > kShownBytes) {
    return fmt::format("a string of {} bytes", value.get_ref<const std::string&>().size());
  }
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

const Fields::Json* Fields::value(std::string_view name) {
  known_.emplace_back(name);
  if (!ok()) return nullptr;
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* found = value(name);
  if (found == nullptr) return {};
  if (found->is_boolean()) return found->get<bool>();
  fail_type(name, "true or false", *found);
  return {};
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t lowest, int64_t highest) {
  const Json* found = value(name);
  if (found == nullptr) return {};
  if (!found->is_number_integer()) {
    fail_type(name, "an integer", *found);
    return {};
  }
  const bool too_large = found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX};
  const int64_t number = too_large ? INT64_MAX : found->get<int64_t>();
  if (number < lowest) {
    fail(name,
         fmt::format("'{}{}' must be at least {}, the value is {}", where_, name, lowest, found->dump()),
         "integer_below_min_value");
    return {};
  }
  if (number > highest || too_large) {
    fail(name,
         fmt::format("'{}{}' must be at most {}, the value is {}", where_, name, highest, found->dump()),
         "integer_above_max_value");
    return {};
  }
  return number;
}

std::optional<double> Fields::number(std::string_view name, double lowest, double highest) {
  const Json* found = value(name);
  if (found == nullptr) return {};
  if (!found->is_number()) {
    fail_type(name, "a number", *found);
    return {};
  }
  const double number = found->get<double>();
  if (number < lowest) {
    fail(name,
         fmt::format("'{}{}' must be at least {}, the value is {}", where_, name, lowest, found->dump()),
         "decimal_below_min_value");
    return {};
  }
  if (number > highest) {
    fail(name,
         fmt::format("'{}{}' must be at most {}, the value is {}", where_, name, highest, found->dump()),
         "decimal_above_max_value");
    return {};
  }
  return number;
}

std::optional<std::string> Fields::string(std::string_view name) {
  const Json* found = value(name);
  if (found == nullptr) return {};
  if (found->is_string()) return found->get<std::string>();
  fail_type(name, "a string", *found);
  return {};
}

const Fields::Json* Fields::object(std::string_view name) {
  const Json* found = value(name);
  if (found == nullptr || found->is_object()) return found;
  fail_type(name, "an object", *found);
  return nullptr;
}

const Fields::Json* Fields::array(std::string_view name) {
  const Json* found = value(name);
  if (found == nullptr || found->is_array()) return found;
  fail_type(name, "an array", *found);
  return nullptr;
}

void Fields::fail(std::string_view name, std::string message, std::string code) {
  fail(bad_field(where_ + std::string(name), std::move(message), std::move(code)));
}

void Fields::fail_type(std::string_view name, std::string_view expected, const Json& found) {
  fail(name, fmt::format("'{}{}' must be {}, the value is {}", where_, name, expected, shown(found)),
       "invalid_type");
}

void Fields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

std::optional<ApiError> Fields::finish() {
  if (error_) return error_;
  std::vector<std::string> unknown;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) unknown.push_back(where_ + key);
  }
  if (unknown.empty()) return {};
  return bad_field(unknown.front(),
                   fmt::format("Unrecognized request argument{} supplied: {}", unknown.size() == 1 ? "" : "s",
                               fmt::join(unknown, ", ")),
                   "unknown_parameter");
}

}  // namespace sluice::server
