// What one exchange must give, computed the plain way: every token, every chosen expert, the sums in the
// order that exchange.h promises. Shares no code with src/exchange but the scalar roundings of base/dtype.h.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "exchange/exchange.h"

namespace sluice::exchange::test {

// One rank's part in one exchange.
struct Tokens {
  int count = 0;
  std::vector<float> x;          // (count, hidden), values that bfloat16 holds when given as bfloat16
  std::vector<int32_t> experts;  // (count, top_k)
  std::vector<float> weights;
};

enum class Load { uniform, one_expert_first, skewed };

Tokens draw_tokens(std::mt19937_64& random, const Shape& shape, int count, Load load);

float round_to(DType type, float value);

// The expert of the tests: y[i] depends on the expert and on x[i] and a neighbour, so a wrong row, a wrong
// expert or a shifted row all show.
void apply_expert(int expert, const float* x, float* y, int hidden);

// (count, hidden)
std::vector<float> expected_result(const Shape& shape, const Placement& placement, const Tokens& tokens);

// Bit patterns, for comparisons that tell -0 from 0.
std::vector<uint32_t> bits_of(const std::vector<float>& values);

}  // namespace sluice::exchange::test
