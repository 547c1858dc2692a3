#include "compute/cpu/kv_cache.h"

#include <fmt/format.h>

namespace sluice::compute::cpu {
namespace {

Status check_shape(const KvShape& shape) {
  if (shape.layers <= 0 || shape.blocks <= 0 || shape.kv_heads <= 0) {
    return invalid_argument(fmt::format("KV cache of {} layers, {} blocks, {} heads; all must be positive",
                                        shape.layers, shape.blocks, shape.kv_heads));
  }
  if (shape.head_dim <= 0 || shape.head_dim > kMostHeadDim || shape.head_dim % 2 != 0) {
    return invalid_argument(fmt::format("KV cache with head_dim {}; it must be even and at most {}",
                                        shape.head_dim, kMostHeadDim));
  }
  const bool fits =
      shape.block_size > 0 && (shape.block_size % kKeyLanes == 0 || kKeyLanes % shape.block_size == 0);
  if (!fits) {
    return invalid_argument(
        fmt::format("KV block size {}; the CPU back end takes multiples of {}, and 1, 2, 4 and 8",
                    shape.block_size, kKeyLanes));
  }
  if (shape.dtype != DType::float32 && shape.dtype != DType::bfloat16) {
    return unimplemented(fmt::format("KV cache of type {}; the CPU back end stores float32 and bfloat16",
                                     dtype_name(shape.dtype)));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<CpuKvCache>> CpuKvCache::make(const KvShape& shape) {
  SLUICE_RETURN_IF_ERROR(check_shape(shape));
  auto cache = std::make_unique<CpuKvCache>();
  cache->shape_ = shape;
  const size_t heads = static_cast<size_t>(shape.layers) * static_cast<size_t>(shape.blocks) *
                       static_cast<size_t>(shape.kv_heads) * dtype_bytes(shape.dtype);
  const auto key_positions = static_cast<size_t>(round_up(shape.block_size, kKeyLanes));
  SLUICE_ASSIGN_OR_RETURN(cache->keys_,
                          Memory::allocate(heads * key_positions * static_cast<size_t>(shape.head_dim)));
  SLUICE_ASSIGN_OR_RETURN(cache->values_, Memory::allocate(heads * static_cast<size_t>(shape.block_size) *
                                                           static_cast<size_t>(cache->value_stride())));
  return cache;
}

}  // namespace sluice::compute::cpu
