// A step's parts laid out as the model wants them: tokens in rows, one Sequence a request, and the rows whose
// logits are wanted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compute/ops.h"
#include "engine/scheduler.h"
#include "model/model.h"

namespace sluice::engine {

// One token at position 0 of a block of its own.
struct Canary {
  int32_t token = 0;
  int32_t block = 0;
};

class StepBatch {
 public:
  // The canary, when there is one, is row 0 and its logits are row 0 of the logits. The parts' logits follow
  // in the parts' order, for those that complete.
  StepBatch(const std::vector<Part>& parts, const std::optional<Canary>& canary);
  StepBatch(const StepBatch&) = delete;
  StepBatch& operator=(const StepBatch&) = delete;

  // Points into this object and the parts' requests.
  model::Batch view(exchange::StepFlags flags) const { return {tokens_, sequences_, logit_rows_, flags}; }
  int64_t logit_count() const { return static_cast<int64_t>(logit_rows_.size()); }

 private:
  void append(std::span<const int32_t> tokens, int64_t start, std::span<const int32_t> blocks, bool logits);

  int32_t canary_block_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<compute::Sequence> sequences_;
  std::vector<int64_t> logit_rows_;
};

}  // namespace sluice::engine
