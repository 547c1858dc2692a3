#include "engine/step_batch.h"

namespace sluice::engine {

StepBatch::StepBatch(const std::vector<Part>& parts, const std::optional<Canary>& canary) {
  if (canary) {
    canary_block_ = canary->block;
    append({&canary->token, 1}, 0, {&canary_block_, 1}, true);
  }
  for (const Part& part : parts) {
    const RequestState& request = *part.request;
    const auto first = static_cast<size_t>(request.computed);
    append(std::span(request.tokens).subspan(first, static_cast<size_t>(part.queries)), request.computed,
           request.blocks, part.completes);
  }
}

void StepBatch::append(std::span<const int32_t> tokens, int64_t start, std::span<const int32_t> blocks,
                       bool logits) {
  const auto first_row = static_cast<int64_t>(tokens_.size());
  const auto queries = static_cast<int64_t>(tokens.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  sequences_.push_back({first_row, queries, start, blocks});
  if (logits) logit_rows_.push_back(first_row + queries - 1);
}

}  // namespace sluice::engine
