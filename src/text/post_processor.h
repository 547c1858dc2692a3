// The post-processor of a tokenizer.json as far as it adds tokens: those before and behind a single text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/status.h"

namespace sluice::text {

struct PostProcessor {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

// `spec` is the file's "post_processor", null included.
Result<PostProcessor> parse_post_processor(const nlohmann::json& spec, int32_t vocabulary);

}  // namespace sluice::text
