// A Backend of plain loops: slow, simple, one thread. Weights are unpacked to float32, sums are float32 in a
// fixed order, and every row is computed for itself, so it is deterministic whatever the options say. The
// oracle for real back ends, and what tests of model/ run on.
#pragma once

#include <memory>

#include "compute/ops.h"

namespace sluice::test {

std::unique_ptr<compute::Backend> make_reference_backend(const compute::Options& options);

}  // namespace sluice::test
