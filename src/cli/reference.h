// reference.json: prompts and what a trusted implementation computes for them, as `sluice check` reads it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sluice::cli {

struct ReferenceCase {
  std::vector<int32_t> prompt;                      // input_ids
  std::vector<int32_t> greedy;                      // the continuation at temperature 0, EOS ignored
  std::vector<float> greedy_margin;                 // best logit minus the second, by token; may be empty
  std::vector<float> last_logits;                   // after the prompt, (vocab); or else
  std::vector<std::pair<int32_t, float>> last_top;  // the largest of them with their ids
  std::vector<float> prompt_logprobs;               // of prompt[1..]; may be empty
};

// An error names the file, the case, the field and what is wrong with it.
Result<std::vector<ReferenceCase>> read_reference(const std::string& path);

}  // namespace sluice::cli
