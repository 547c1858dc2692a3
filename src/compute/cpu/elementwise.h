// Operations on single rows: conversions between types, sums, the gated activation.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace sluice::compute::cpu {

// to[0, length) float32 = from (float32 or bfloat16); to[length, padded) = 0.
void load_row(const void* from, DType type, int64_t length, int64_t padded, float* to);
// to (float32 or bfloat16, rounded to nearest even) = from[0, length).
void store_row(const float* from, int64_t length, DType type, void* to);
// Every element becomes the nearest value of `type`.
void round_row(float* row, int64_t length, DType type);
// to += from
void add_row(const float* from, int64_t length, float* to);
// to = silu(gate) * up
void silu_mul_row(const float* gate, const float* up, int64_t length, float* to);
// row = e^(row - largest) / sum of the same; e^x of the kernels, summed in 16 chains.
void softmax_row(float* row, int64_t length);
// to = e^from
void exp_row(const float* from, int64_t length, float* to);

}  // namespace sluice::compute::cpu
