// The copies that no exchange can avoid, at the speed of this machine: the floor that prefill is measured
// against. Independent of src/exchange, so that a slow kernel there does not lower the floor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace sluice::bench {

// out[i] = rows[0][i] + rows[1][i] + ..., summed in float32. Rows are all of `type`; out is float32 or
// bfloat16.
void add_rows(std::span<const void* const> rows, DType type, void* out, DType out_type, int64_t n);

}  // namespace sluice::bench
