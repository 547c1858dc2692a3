// The exchange's arithmetic: rounding rows to the wire type and summing weighted rows. One implementation for
// all paths, compiled without contraction, so that the same inputs give the same bits on any number of ranks.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace sluice::exchange {

struct WeightedRow {
  const void* data = nullptr;
  float weight = 1.0F;
  DType type = DType::float32;  // float32 or bfloat16
};

// Copies n elements; both types are float32 or bfloat16, rounding as base/dtype.h does.
void convert_row(void* to, DType to_type, const void* from, DType from_type, int64_t n);

// out[i] = rows[0].weight * rows[0][i] + rows[1].weight * rows[1][i] + ..., added in that order in float32,
// then rounded to out_type. At least one row; out overlaps none.
void sum_rows(std::span<const WeightedRow> rows, void* out, DType out_type, int64_t n);

}  // namespace sluice::exchange
