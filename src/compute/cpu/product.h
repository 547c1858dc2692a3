// y = x W^T for one packed matrix, spread over the rank's threads.
#pragma once

#include "base/matrix.h"
#include "compute/cpu/memory.h"
#include "compute/cpu/pack.h"
#include "compute/cpu/workers.h"

namespace sluice::compute::cpu {

// x (n, w.in()) and out (n, w.out()): float32 or bfloat16.
void product_with_own_kernels(ConstMatrix x, const PackedMatrix& w, Matrix out, Workers& workers,
                              Scratch& scratch);

}  // namespace sluice::compute::cpu
