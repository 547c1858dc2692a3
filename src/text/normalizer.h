// The normalizer of a tokenizer.json: a sequence of Unicode normal forms, or nothing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/unicode.h"

namespace sluice::text {

class Normalizer {
 public:
  // `spec` is the file's "normalizer", null included.
  static Result<Normalizer> parse(const nlohmann::json& spec);

  bool changes_nothing() const { return forms_.empty(); }
  std::string apply(std::string_view valid) const;

 private:
  Status add(const nlohmann::json& spec, const std::string& where, int depth);

  std::vector<NormalForm> forms_;
};

}  // namespace sluice::text
