// What the ranks of fabric-test and of `bench exchange` send each other: tokens that any rank can compute for
// every other one from the seed, experts that are cheap and tell a wrong row, expert or element apart, and
// the plain computation of what one exchange must give. It shares no code with src/exchange but the scalar
// roundings of base/dtype.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/matrix.h"
#include "base/status.h"
#include "exchange/exchange.h"

namespace sluice::bench {

enum class Load {
  uniform,     // every token draws its experts at random
  skewed,      // a quarter of the experts draws three quarters of the tokens
  one_expert,  // every token's first choice is expert 0; the others are its neighbours
};
std::string_view load_name(Load load);
std::optional<Load> parse_load(std::string_view name);

// One rank's part in one exchange.
struct Tokens {
  int count = 0;
  int hidden = 0;
  DType dtype = DType::float32;  // of x: bfloat16 where the wire is, float32 else
  std::vector<std::byte> x;      // (count, hidden)
  std::vector<int32_t> experts;  // (count, top_k)
  std::vector<float> weights;    // (count, top_k)

  ConstMatrix matrix() const { return {x.data(), dtype, count, hidden, hidden}; }
};

Tokens make_tokens(const exchange::Shape& shape, int rank, int count, Load load, uint64_t seed);

// The experts compute y[i] = expert_scale(expert) * x[i]; 64 experts in a row have different scales.
float expert_scale(int expert);
// Fills (pairs, hidden): each row that arrived through its expert. `experts` are the global numbers of the
// local ones.
void apply_experts(const exchange::Received& received, DType wire, int hidden,
                   const std::vector<int>& experts, float* pair_rows);

// What `rank` must receive: the rows of all ranks' tokens grouped by local expert, by source, in token order.
// An error names the first difference.
Status check_received(const exchange::Shape& shape, const exchange::Placement& placement, int rank,
                      const std::vector<Tokens>& all, const exchange::Received& received);
// What a combine must give, to the last bit. out: (tokens, hidden).
Status check_combined(const exchange::Shape& shape, const exchange::Placement& placement,
                      const Tokens& tokens, const float* out);

}  // namespace sluice::bench
