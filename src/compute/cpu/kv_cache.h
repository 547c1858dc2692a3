// Paged keys and values. A block of one layer and head is
//   keys   (block_size / 16, head_dim, 16): 16 positions side by side, so that lanes run over positions
//   values (block_size, head_dim rounded up to 16): one position's lanes run over head_dim
// Blocks smaller than 16 positions leave lanes of their keys unused.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "compute/cpu/memory.h"
#include "compute/cpu/pack.h"
#include "compute/ops.h"

namespace sluice::compute::cpu {

constexpr int64_t kKeyLanes = 16;
constexpr int64_t kMostHeadDim = 512;

class CpuKvCache : public KvCache {
 public:
  // Refuses block sizes that neither divide nor are a multiple of 16.
  static Result<std::unique_ptr<CpuKvCache>> make(const KvShape& shape);

  const KvShape& shape() const override { return shape_; }
  size_t bytes() const override { return keys_.bytes() + values_.bytes(); }

  // Positions that one group of key lanes holds.
  int64_t group_positions() const { return std::min<int64_t>(shape_.block_size, kKeyLanes); }
  int64_t value_stride() const { return round_up(shape_.head_dim, kKeyLanes); }

  // Where the 16 lanes of keys that hold `position` begin in keys(), (head_dim, 16).
  int64_t key_offset(int layer, std::span<const int32_t> blocks, int head, int64_t position) const {
    const int64_t groups = (shape_.block_size + kKeyLanes - 1) / kKeyLanes;
    const int64_t group =
        head_block(layer, blocks, head, position) * groups + position % shape_.block_size / kKeyLanes;
    return group * shape_.head_dim * kKeyLanes;
  }
  // Where `position` begins in values(), (head_dim).
  int64_t value_offset(int layer, std::span<const int32_t> blocks, int head, int64_t position) const {
    const int64_t row =
        head_block(layer, blocks, head, position) * shape_.block_size + position % shape_.block_size;
    return row * value_stride();
  }
  // T: float, or uint16_t for bfloat16.
  template <class T>
  T* keys() {
    return static_cast<T*>(keys_.data());
  }
  template <class T>
  const T* keys() const {
    return static_cast<const T*>(keys_.data());
  }
  template <class T>
  T* values() {
    return static_cast<T*>(values_.data());
  }
  template <class T>
  const T* values() const {
    return static_cast<const T*>(values_.data());
  }

 private:
  // Ordinal of the (layer, block, head) that holds `position`.
  int64_t head_block(int layer, std::span<const int32_t> blocks, int head, int64_t position) const {
    const int64_t block = blocks[static_cast<size_t>(position / shape_.block_size)];
    return (layer * static_cast<int64_t>(shape_.blocks) + block) * shape_.kv_heads + head;
  }

  KvShape shape_;
  Memory keys_;
  Memory values_;
};

}  // namespace sluice::compute::cpu
