// How far what an engine computed is from a reference, and whether that is near enough.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/reference.h"

namespace sluice::cli {

// What the engine computed for one case.
struct Observed {
  Status status;                    // why it stopped early, if it did
  std::vector<float> first_logits;  // after the prompt, (vocab)
  std::vector<int32_t> tokens;
  std::vector<float> margins;          // of our own logits, by token: best minus second
  std::vector<float> largest;          // of our own logits, by token: the largest magnitude
  std::vector<float> prompt_logprobs;  // of prompt[1..], when the reference has them
  uint64_t logits_hash = 0;            // of the bits of all logits, in order
};

struct Verdict {
  double logits_error = 0;                      // relative, l2
  std::optional<double> prompt_logprobs_error;  // relative, l2; absent without a reference
  size_t agreed = 0;                            // greedy tokens, from the first on
  std::optional<float> excused_margin;          // of the first token that differs and may, relative
  std::string failure;                          // empty: near enough
};

// sqrt(sum (a - b)^2 / sum b^2); infinite when a is not finite. Of equal length.
double relative_error(std::span<const float> a, std::span<const float> b);
// The best value minus the second best; 0 for fewer than two.
float margin_of(std::span<const float> logits);
// The largest magnitude; 0 for none.
float largest_of(std::span<const float> logits);

// A greedy token may differ where the two best logits lie within `tolerance` of each other, relative like the
// error of the logits: their margin (the reference's, or where that is not given our own) is at most
// `tolerance` times the largest logit. Nothing is compared after such a token.
Verdict judge(const ReferenceCase& reference, const Observed& observed, double tolerance);

}  // namespace sluice::cli
