// Paged causal attention with an online softmax. A row (one query of one head) folds tiles of 64 positions
// that begin at multiples of 64, in ascending order; within a tile every score is one chain over head_dim,
// every output one chain over the tile's positions. A row's bits therefore depend on its query, its position
// and the keys and values before it: not on how a prompt was cut into steps, nor on the rows beside it.
#pragma once

#include <span>

#include "base/matrix.h"
#include "compute/cpu/kv_cache.h"
#include "compute/cpu/workers.h"
#include "compute/ops.h"

namespace sluice::compute::cpu {

// Backend::attention.
void attend(const AttentionShape& shape, ConstMatrix q, std::span<const Sequence> sequences, int layer,
            const CpuKvCache& cache, Matrix out, Workers& workers);

}  // namespace sluice::compute::cpu
