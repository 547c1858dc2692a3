// Reads a JSON object's fields one by one, strictly: a wrong type or range is an error that names the field,
// the value found and what would be right. The first error is kept and later reads give nothing, so that a
// parser reads straight through and asks once. null counts as absent, as in OpenAI's API.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace sluice::server {

class Fields {
 public:
  using Json = nlohmann::ordered_json;

  // `where` goes before names in errors: "stream_options." for a nested object. `object` must be an object.
  explicit Fields(const Json& object, std::string where = {});

  // The value if the field is there and not null. The field counts as known from now on.
  const Json* value(std::string_view name);

  std::optional<bool> boolean(std::string_view name);
  std::optional<int64_t> integer(std::string_view name, int64_t lowest, int64_t highest);
  std::optional<double> number(std::string_view name, double lowest, double highest);
  std::optional<std::string> string(std::string_view name);
  const Json* object(std::string_view name);
  const Json* array(std::string_view name);

  // Known and without effect here, whatever the value.
  void accept(std::string_view name) { value(name); }

  void fail(std::string_view name, std::string message, std::string code = {});
  // "'name' must be <expected>, the value is <shown>".
  void fail_type(std::string_view name, std::string_view expected, const Json& found);
  void fail(ApiError error);
  bool ok() const { return !error_; }
  // The first error; with none so far, all fields that nobody has asked for are one.
  std::optional<ApiError> finish();
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const Json& object_;
  std::string where_;
  std::vector<std::string> known_;
  std::optional<ApiError> error_;
};

// A value as errors show it: JSON, cut to a bearable length.
std::string shown(const nlohmann::ordered_json& value);

}  // namespace sluice::server
