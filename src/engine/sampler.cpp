#include "engine/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace sluice::engine {
namespace {

int32_t greedy(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

struct Candidate {
  double weight;  // exp((logit - largest) / temperature)
  float logit;
  int32_t id;
};

// A heap's order: the most likely on top, ties to the lowest id. By logit, because weights may underflow.
bool less_likely(const Candidate& a, const Candidate& b) {
  return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
}

std::vector<Candidate> weigh(std::span<const float> logits, double temperature) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t id = 0; id < logits.size(); ++id) {
    const double weight = std::exp((static_cast<double>(logits[id]) - largest) / temperature);
    candidates.push_back({weight, logits[id], static_cast<int32_t>(id)});
  }
  return candidates;
}

double total_weight(std::span<const Candidate> candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// Takes the most likely candidates off the heap, in order, until their weights reach `mass`.
std::vector<Candidate> nucleus(std::vector<Candidate> candidates, double mass) {
  std::make_heap(candidates.begin(), candidates.end(), less_likely);
  std::vector<Candidate> kept;
  double sum = 0;
  while (!candidates.empty() && (kept.empty() || sum < mass)) {
    std::pop_heap(candidates.begin(), candidates.end(), less_likely);
    kept.push_back(candidates.back());
    sum += candidates.back().weight;
    candidates.pop_back();
  }
  return kept;
}

int32_t draw(std::span<const Candidate> candidates, double u) {
  const double target = u * total_weight(candidates);
  double sum = 0;
  int32_t last = candidates.front().id;
  for (const Candidate& candidate : candidates) {
    if (candidate.weight == 0) continue;
    last = candidate.id;
    sum += candidate.weight;
    if (sum > target) break;
  }
  return last;
}

}  // namespace

int32_t sample(std::span<const float> logits, const SamplingParameters& sampling, int64_t position) {
  if (sampling.temperature <= 0) return greedy(logits);
  std::vector<Candidate> candidates = weigh(logits, sampling.temperature);
  // top-k first, then top-p of what it left: the order of transformers and vLLM.
  const auto top_k = static_cast<size_t>(sampling.top_k);
  if (top_k > 0 && top_k < candidates.size()) {
    const auto more_likely = [](const Candidate& a, const Candidate& b) { return less_likely(b, a); };
    const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(top_k);
    std::nth_element(candidates.begin(), end - 1, candidates.end(), more_likely);
    candidates.erase(end, candidates.end());
    std::sort(candidates.begin(), candidates.end(), more_likely);
  }
  if (sampling.top_p < 1.0F) {
    const double mass = sampling.top_p * total_weight(candidates);
    candidates = nucleus(std::move(candidates), mass);
  }
  return draw(candidates, uniform(sampling.seed, position));
}

Status check_finite(std::span<const float> logits) {
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  if (bad == logits.end()) return {};
  return data_loss(
      fmt::format("the logit of token {} is {}; every logit must be finite", bad - logits.begin(), *bad));
}

float log_probability(std::span<const float> logits, int32_t token) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - largest));
  return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(token)] - largest) -
                            std::log(sum));
}

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double uniform(uint64_t seed, int64_t position) {
  const auto counter = static_cast<uint64_t>(position);
  const std::array<uint32_t, 4> random =
      philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{random[0]} << 21) ^ (random[1] >> 11);
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace sluice::engine
