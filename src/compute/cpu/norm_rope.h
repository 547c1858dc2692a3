// Root-mean-square normalisation and rotary embedding of single rows, and the step that applies both to a
// step's queries and keys and stores keys and values.
#pragma once

#include <cstdint>
#include <span>

#include "base/matrix.h"
#include "compute/cpu/kv_cache.h"
#include "compute/cpu/rope_table.h"
#include "compute/cpu/workers.h"
#include "compute/ops.h"

namespace sluice::compute::cpu {

// to (float32 or bfloat16) = x / sqrt(mean(x^2) + eps) * weight; the sum in 16 chains. `to` may be x.
void rms_norm_row(const float* x, const float* weight, float eps, int64_t length, DType type, void* to);

// Rotates the two halves of x (2 x half) against each other, in place.
void rope_row(const float* cosines, const float* sines, int64_t half, float* x);

// Backend::rope_and_store; null norms are left out. `table` holds the step's positions.
struct RopeStep {
  AttentionShape shape;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float eps = 0;
  int layer = 0;
};
void rope_and_store(const RopeStep& step, const RopeTable& table, Matrix q, Matrix k, ConstMatrix v,
                    std::span<const Sequence> sequences, CpuKvCache& cache, Workers& workers);

}  // namespace sluice::compute::cpu
