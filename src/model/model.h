// A model: one readable forward pass per architecture, written on compute/ops.h and exchange/exchange.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "compute/ops.h"
#include "exchange/exchange.h"

namespace sluice::model {

// One step's tokens of one rank. May be empty: the rank then takes part in the exchanges alone.
struct Batch {
  std::span<const int32_t> tokens;               // (tokens)
  std::span<const compute::Sequence> sequences;  // cover the tokens, in row order
  std::span<const int64_t> logit_rows;           // rows whose logits are wanted, ascending
  exchange::StepFlags flags;
};

struct Outcome {
  exchange::StepFlags any;  // the last expert layer's OR over all ranks: does a next step exist?
};

struct Placed {
  const exchange::Placement& placement;
  int rank;
  int max_tokens;                 // of one step: sizes the scratch memory
  int round_tokens = max_tokens;  // of one exchange, as its shape has it
};

class Model {
 public:
  // Touches only the experts that `placed` gives this rank. `backend` must outlive the model.
  static Result<std::unique_ptr<Model>> load(const checkpoint::Checkpoint& checkpoint,
                                             const checkpoint::ModelConfig& config, const Placed& placed,
                                             compute::Backend& backend);
  virtual ~Model() = default;
  // What kv_shape() of the loaded model will say: known from the configuration alone, so that memory can be
  // planned before anything is loaded.
  static compute::KvShape kv_shape_for(const checkpoint::ModelConfig& config, int blocks, int block_size);

  virtual const checkpoint::ModelConfig& config() const = 0;
  // As exact as the model's routers need it; a caller may choose a smaller dtype.
  virtual compute::KvShape kv_shape(int blocks, int block_size) const = 0;
  virtual size_t weight_bytes() const = 0;

  // logits: (logit_rows, vocab) float32, host memory. Stores the step's keys and values into `cache` at the
  // positions the sequences name. Every wait in it ends by `deadline`.
  virtual Result<Outcome> forward(const Batch& batch, compute::KvCache& cache, exchange::Exchange& exchange,
                                  Matrix logits, Deadline deadline) = 0;
};

}  // namespace sluice::model
