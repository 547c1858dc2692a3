#include "cli/judge.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::cli {
namespace {

// Ours at the ids that the reference holds, and the reference's.
Status pick_logits(const ReferenceCase& reference, std::span<const float> logits, std::vector<float>& ours,
                   std::vector<float>& theirs) {
  if (!reference.last_logits.empty()) {
    if (reference.last_logits.size() != logits.size()) {
      return invalid_argument(fmt::format("last_logits has {} values; the model's vocabulary has {}",
                                          reference.last_logits.size(), logits.size()));
    }
    ours.assign(logits.begin(), logits.end());
    theirs = reference.last_logits;
    return {};
  }
  for (const auto& [id, logit] : reference.last_top) {
    if (static_cast<size_t>(id) >= logits.size()) {
      return invalid_argument(
          fmt::format("last_top20 names token {}; the model's vocabulary has {}", id, logits.size()));
    }
    ours.push_back(logits[static_cast<size_t>(id)]);
    theirs.push_back(logit);
  }
  return {};
}

// How far the greedy tokens agree; a difference that nothing excuses becomes the failure.
void compare_greedy(const ReferenceCase& reference, const Observed& observed, double tolerance,
                    Verdict& verdict) {
  const size_t count = std::min(reference.greedy.size(), observed.tokens.size());
  while (verdict.agreed < count && reference.greedy[verdict.agreed] == observed.tokens[verdict.agreed])
    ++verdict.agreed;
  const size_t at = verdict.agreed;
  if (at == reference.greedy.size()) return;
  if (at == observed.tokens.size()) {
    verdict.failure = fmt::format("gave {} tokens of {}", at, reference.greedy.size());
    return;
  }
  const float margin = reference.greedy_margin.empty() ? observed.margins[at] : reference.greedy_margin[at];
  const float relative = margin / observed.largest[at];
  if (relative <= tolerance) {
    verdict.excused_margin = relative;
    return;
  }
  verdict.failure = fmt::format(
      "greedy token {} is {}, the reference has {} by a margin of {:.3g}, {:.3g} of the largest logit and "
      "over the "
      "tolerance {}",
      at, observed.tokens[at], reference.greedy[at], margin, relative, tolerance);
}

}  // namespace

double relative_error(std::span<const float> a, std::span<const float> b) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
  if (difference == 0) return 0;
  return std::sqrt(difference / size);
}

float margin_of(std::span<const float> logits) {
  if (logits.size() < 2) return 0;
  float best = -std::numeric_limits<float>::infinity();
  float second = best;
  for (const float logit : logits) {
    if (logit > best) {
      second = best;
      best = logit;
    } else {
      second = std::max(second, logit);
    }
  }
  return best - second;
}

float largest_of(std::span<const float> logits) {
  float largest = 0;
  for (const float logit : logits) largest = std::max(largest, std::abs(logit));
  return largest;
}

Verdict judge(const ReferenceCase& reference, const Observed& observed, double tolerance) {
  Verdict verdict;
  if (!observed.status.ok()) {
    verdict.failure = observed.status.message();
    return verdict;
  }
  std::vector<float> ours;
  std::vector<float> theirs;
  if (const Status picked = pick_logits(reference, observed.first_logits, ours, theirs); !picked.ok()) {
    verdict.failure = picked.message();
    return verdict;
  }
  verdict.logits_error = relative_error(ours, theirs);
  if (!observed.prompt_logprobs.empty()) {
    verdict.prompt_logprobs_error = relative_error(observed.prompt_logprobs, reference.prompt_logprobs);
  }
  compare_greedy(reference, observed, tolerance, verdict);
  // Not "error > tolerance": a NaN must not pass.
  if (!(verdict.logits_error <= tolerance)) {
    verdict.failure =
        fmt::format("logits are off by {:.3g}, over the tolerance {}", verdict.logits_error, tolerance);
  } else if (verdict.prompt_logprobs_error && !(*verdict.prompt_logprobs_error <= tolerance)) {
    verdict.failure = fmt::format("log-probabilities of the prompt are off by {:.3g}, over the tolerance {}",
                                  *verdict.prompt_logprobs_error, tolerance);
  }
  return verdict;
}

}  // namespace sluice::cli
