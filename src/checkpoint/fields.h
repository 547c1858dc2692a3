// A JSON object of a configuration file, read field by field. Every error says the file, the field, the value
// found and what it must be. A field that is null counts as absent, as transformers writes them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::checkpoint {

// A value as an error shows it: JSON, cut when long.
std::string json_text(const nlohmann::json& value);

struct Field {
  const char* name = nullptr;             // the spelling found, or the preferred one
  const nlohmann::json* value = nullptr;  // null when absent
};

// A number's bounds: above < x <= max.
struct Range {
  double above = 0;
  double max = 0;
};

class Fields {
 public:
  // A field's spellings, the preferred one first. Two that are present must agree.
  using Names = std::initializer_list<const char*>;

  // `object` is a JSON object and must outlive this. `path` is the file; `prefix` leads to the object in it:
  // "rope_parameters.".
  Fields(const nlohmann::json& object, std::string path, std::string prefix = "");

  // Required when there is no fallback.
  Result<int> integer(Names names, int min, int max, std::optional<int> fallback = std::nullopt) const;
  Result<double> number(Names names, Range range, double fallback) const;
  Result<bool> boolean(Names names, bool fallback) const;
  Result<std::string> text(Names names, const std::string& fallback) const;
  // One integer counts as a list of one; absent is empty. Each must lie in [0, max].
  Result<std::vector<int32_t>> integers(Names names, int32_t max) const;
  // Absent is nullopt.
  Result<std::optional<Fields>> object(Names names) const;
  // The value itself, whatever it is.
  Result<Field> find(Names names) const;

  // "<path>: field '<name>' is <value>; <remedy>".
  Status wrong(const Field& field, const std::string& remedy, Code code = Code::invalid_argument) const;

 private:
  const nlohmann::json* object_;
  std::string path_;
  std::string prefix_;
};

}  // namespace sluice::checkpoint
