// What a forward pass demands of its caller, checked before anything is computed: a wrong token, row or block
// number would otherwise be a read outside of memory.
#pragma once

#include "model/model.h"

namespace sluice::model {

// `max_tokens`, `round_tokens`: what scratch memory has room for, in a step and in an exchange.
Status check_step(const checkpoint::ModelConfig& config, int64_t max_tokens, int64_t round_tokens,
                  const Batch& batch, const compute::KvCache& cache, const exchange::Exchange& exchange,
                  const Matrix& logits);

}  // namespace sluice::model
