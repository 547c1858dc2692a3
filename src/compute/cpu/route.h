// The router's choice, as transformers' Qwen3MoeTopKRouter makes it.
#pragma once

#include <cstdint>
#include <span>

#include "base/matrix.h"
#include "compute/cpu/memory.h"
#include "compute/cpu/workers.h"

namespace sluice::compute::cpu {

// Backend::route. Logits that are NaN make the row's weights NaN; its experts are distinct and valid still.
void route_tokens(ConstMatrix logits, int top_k, bool normalise, std::span<int32_t> experts,
                  std::span<float> weights, Workers& workers, Scratch& scratch);

}  // namespace sluice::compute::cpu
