// What a shape costs, and which shapes cannot be.
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "exchange/exchange.h"
#include "exchange/message.h"

namespace sluice::exchange {
namespace {

// The largest window that is worth an attempt; keeps every product below far from 64 bits.
constexpr size_t kMaxBytes = size_t{1} << 46;
constexpr int64_t kMaxPairs = std::numeric_limits<int32_t>::max();

Status check_range(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(
      fmt::format("exchange shape: {} is {}; it must be between {} and {}", field, value, low, high));
}

Status check_shape(const Shape& shape, const Placement& placement) {
  SLUICE_RETURN_IF_ERROR(check_range("ranks", shape.ranks, 1, kMaxRanks));
  SLUICE_RETURN_IF_ERROR(check_range("experts", shape.experts, 1, std::numeric_limits<int>::max()));
  if (shape.ranks > shape.experts) {
    return invalid_argument(
        fmt::format("exchange shape: {} ranks for {} experts; there can be at most one rank an expert",
                    shape.ranks, shape.experts));
  }
  SLUICE_RETURN_IF_ERROR(check_range("top_k", shape.top_k, 1, std::min(kMaxTopK, shape.experts)));
  SLUICE_RETURN_IF_ERROR(check_range("hidden", shape.hidden, 1, 1 << 24));
  SLUICE_RETURN_IF_ERROR(check_range("max_tokens", shape.max_tokens, 1, 1 << 24));
  if (shape.wire != DType::float32 && shape.wire != DType::bfloat16) {
    return invalid_argument(fmt::format("exchange shape: wire type is {}; it must be float32 or bfloat16",
                                        dtype_name(shape.wire)));
  }
  if (placement.experts() != shape.experts || placement.ranks() != shape.ranks) {
    return invalid_argument(
        fmt::format("exchange shape: {} experts on {} ranks, but the placement has {} on {}", shape.experts,
                    shape.ranks, placement.experts(), placement.ranks()));
  }
  return {};
}

}  // namespace

std::string_view phase_name(Phase phase) { return phase == Phase::dispatch ? "dispatch" : "combine"; }

Result<Plan> plan(const Shape& shape, const Placement& placement) {
  SLUICE_RETURN_IF_ERROR(check_shape(shape, placement));

  const auto experts = static_cast<size_t>(placement.most_experts_per_rank());
  const auto tokens = static_cast<size_t>(shape.max_tokens);
  const size_t experts_a_token = std::min(static_cast<size_t>(shape.top_k), experts);
  const size_t pairs = tokens * experts_a_token;
  const auto ranks = static_cast<size_t>(shape.ranks);
  if (pairs * ranks > static_cast<size_t>(kMaxPairs)) {
    return invalid_argument(fmt::format(
        "exchange shape: {} ranks x {} tokens x {} experts a token are {} pairs in one exchange; a "
        "rank can index {}: lower max_tokens to at most {}",
        ranks, tokens, experts_a_token, pairs * ranks, kMaxPairs,
        static_cast<size_t>(kMaxPairs) / ranks / experts_a_token));
  }

  const size_t stride = row_stride(without_needless_rounding(shape));
  const size_t returned = shape.exact ? pairs : tokens;
  Plan result;
  result.dispatch_slab_bytes = dispatch_layout(shape, experts, tokens, pairs).end;
  result.combine_slab_bytes = combine_bytes(shape, returned);
  result.own_bytes = fabric::kHalves * tokens * stride;
  const size_t slabs =
      result.dispatch_slab_bytes + result.combine_slab_bytes + fabric::kKinds * sizeof(fabric::SlabHeader);
  const bool alone = shape.ranks == 1;
  if (slabs > kMaxBytes / fabric::kHalves / ranks) {
    return invalid_argument(fmt::format(
        "exchange shape: {} ranks x {} halves x {} bytes exceed {} bytes: lower max_tokens ({}) or "
        "hidden ({})",
        ranks, fabric::kHalves, slabs, kMaxBytes, shape.max_tokens, shape.hidden));
  }
  result.window_bytes = alone ? 0 : ranks * fabric::kHalves * slabs;
  result.staging_bytes = result.window_bytes;

  const std::string dispatch =
      fmt::format("dispatch slab {} = header {} + {} experts x {} + {} pairs x {} (to 64) + {} tokens x {}",
                  result.dispatch_slab_bytes, sizeof(DispatchHeader), experts, sizeof(uint32_t), pairs,
                  sizeof(PairEntry) + (shape.exact ? 0 : sizeof(float)), tokens, stride);
  const std::string combine =
      fmt::format("combine slab {} = header {} + {} {} x {}", result.combine_slab_bytes,
                  sizeof(CombineHeader), returned, shape.exact ? "pairs" : "tokens", returned_stride(shape));
  result.formula = fmt::format(
      "{}; {}; window {} = {} ranks x {} halves x ({} + {} + {} headers x {}); the same again for staging "
      "where peers are on the network; own rows {} = {} halves x {} tokens x {}",
      dispatch, combine, result.window_bytes, ranks, fabric::kHalves, result.dispatch_slab_bytes,
      result.combine_slab_bytes, fabric::kKinds, sizeof(fabric::SlabHeader), result.own_bytes,
      fabric::kHalves, tokens, stride);
  if (alone) {
    result.formula = fmt::format("one rank: no window; own rows {} = {} halves x {} tokens x {}",
                                 result.own_bytes, fabric::kHalves, tokens, stride);
  }
  return result;
}

}  // namespace sluice::exchange
