// From logits to a token. sample() itself is declared in engine.h; here is what else the step loop and tests
// need. Everything is a pure function of its arguments, the same on every machine with the same math library.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "engine/engine.h"

namespace sluice::engine {

// Ok, or data_loss naming the first id whose logit is NaN or infinite.
Status check_finite(std::span<const float> logits);

// The natural logarithm of softmax(logits)[token], before temperature.
float log_probability(std::span<const float> logits, int32_t token);

// Philox4x32-10, a counter-based generator: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1) with 53 random bits, from the generator keyed by `seed` at counter `position`.
double uniform(uint64_t seed, int64_t position);

}  // namespace sluice::engine
