#include "cli/reference.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

// Reads the fields of one case; `where` is "FILE: case 3".
class CaseReader {
 public:
  CaseReader(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  Result<ReferenceCase> read() const {
    if (!object_.is_object()) return wrong("must be an object");
    ReferenceCase out;
    SLUICE_RETURN_IF_ERROR(ids("input_ids", out.prompt));
    SLUICE_RETURN_IF_ERROR(ids("greedy", out.greedy));
    SLUICE_RETURN_IF_ERROR(numbers("greedy_margin", out.greedy_margin));
    SLUICE_RETURN_IF_ERROR(numbers("prompt_logprobs", out.prompt_logprobs));
    SLUICE_RETURN_IF_ERROR(numbers("last_logits", out.last_logits));
    if (out.last_logits.empty()) SLUICE_RETURN_IF_ERROR(top(out.last_top));
    SLUICE_RETURN_IF_ERROR(length("greedy_margin", out.greedy_margin.size(), out.greedy.size()));
    SLUICE_RETURN_IF_ERROR(length("prompt_logprobs", out.prompt_logprobs.size(), out.prompt.size() - 1));
    return out;
  }

 private:
  Status wrong(const std::string& what) const {
    return invalid_argument(fmt::format("{}: {}", where_, what));
  }

  // An optional list: null when it is absent.
  Result<const json*> list(const char* field) const {
    const auto found = object_.find(field);
    if (found == object_.end()) return static_cast<const json*>(nullptr);
    if (!found->is_array())
      return wrong(fmt::format("{} is {}; it must be a list", field, found->type_name()));
    return &*found;
  }

  Status ids(const char* field, std::vector<int32_t>& out) const {
    SLUICE_ASSIGN_OR_RETURN(const json* values, list(field));
    if (values == nullptr || values->empty())
      return wrong(fmt::format("{} is missing or empty; it must list token ids", field));
    for (const json& value : *values) SLUICE_RETURN_IF_ERROR(id(field, value, out.emplace_back()));
    return {};
  }

  Status id(const char* field, const json& value, int32_t& out) const {
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{INT32_MAX};
    if (!fits) return wrong(fmt::format("{} holds {}; it must hold token ids", field, value.dump()));
    out = value.get<int32_t>();
    return {};
  }

  Status number(const char* field, const json& value, float& out) const {
    if (value.is_number()) out = value.get<float>();
    if (value.is_number() && std::isfinite(out)) return {};
    return wrong(fmt::format("{} holds {}; it must hold finite numbers", field, value.dump()));
  }

  Status numbers(const char* field, std::vector<float>& out) const {
    SLUICE_ASSIGN_OR_RETURN(const json* values, list(field));
    if (values == nullptr) return {};
    for (const json& value : *values) SLUICE_RETURN_IF_ERROR(number(field, value, out.emplace_back()));
    return {};
  }

  Status top(std::vector<std::pair<int32_t, float>>& out) const {
    constexpr const char* kField = "last_top20";
    SLUICE_ASSIGN_OR_RETURN(const json* values, list(kField));
    if (values == nullptr || values->empty()) {
      return wrong("neither last_logits nor last_top20; one of them must hold the logits after the prompt");
    }
    for (const json& pair : *values) {
      if (!pair.is_array() || pair.size() != 2) {
        return wrong(fmt::format("{} holds {}; it must hold pairs of id and logit", kField, pair.dump()));
      }
      auto& [token, logit] = out.emplace_back();
      SLUICE_RETURN_IF_ERROR(id(kField, pair[0], token));
      SLUICE_RETURN_IF_ERROR(number(kField, pair[1], logit));
    }
    return {};
  }

  Status length(const char* field, size_t found, size_t expected) const {
    if (found == 0 || found == expected) return {};
    return wrong(fmt::format("{} has {} values; it must have {}", field, found, expected));
  }

  const json& object_;
  const std::string where_;
};

}  // namespace

Result<std::vector<ReferenceCase>> read_reference(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const json root, read_json_file(path));
  if (!root.is_array() || root.empty()) {
    return invalid_argument(fmt::format("{}: must be a list of at least one case", path));
  }
  std::vector<ReferenceCase> cases;
  for (const json& object : root) {
    SLUICE_ASSIGN_OR_RETURN(cases.emplace_back(),
                            CaseReader(object, fmt::format("{}: case {}", path, cases.size() + 1)).read());
  }
  return cases;
}

}  // namespace sluice::cli
