#include "compute/cpu/route.h"

#include <algorithm>

#include "compute/cpu/elementwise.h"

namespace sluice::compute::cpu {
namespace {

// Marks a probability as taken; no probability is negative.
constexpr float kTaken = -1.0F;

// The largest that is not taken, the lowest index of equals. A NaN counts as the smallest.
int64_t take_largest(float* probabilities, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (probabilities[i] == kTaken) continue;
    if (best < 0 || probabilities[i] > probabilities[best] ||
        (probabilities[best] != probabilities[best] && probabilities[i] == probabilities[i])) {
      best = i;
    }
  }
  return best;
}

void route_token(float* probabilities, int64_t count, int top_k, bool normalise, int32_t* experts,
                 float* weights) {
  softmax_row(probabilities, count);
  float sum = 0;
  for (int k = 0; k < top_k; ++k) {
    const int64_t best = take_largest(probabilities, count);
    experts[k] = static_cast<int32_t>(best);
    weights[k] = probabilities[best];
    sum += weights[k];
    probabilities[best] = kTaken;
  }
  if (!normalise) return;
  for (int k = 0; k < top_k; ++k) weights[k] /= sum;
}

}  // namespace

void route_tokens(ConstMatrix logits, int top_k, bool normalise, std::span<int32_t> experts,
                  std::span<float> weights, Workers& workers, Scratch& scratch) {
  float* probabilities = scratch.get(static_cast<size_t>(logits.rows * logits.cols));
  workers.run(logits.rows, logits.rows * logits.cols * top_k, [&](int64_t row) {
    float* mine = probabilities + row * logits.cols;
    std::copy_n(logits.row<float>(row), logits.cols, mine);
    const auto at = static_cast<size_t>(row * top_k);
    route_token(mine, logits.cols, top_k, normalise, &experts[at], &weights[at]);
  });
}

}  // namespace sluice::compute::cpu
