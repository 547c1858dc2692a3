// Weights as the kernels read them. A matrix (out, in) is cut into tiles of 64 outputs. Inputs go in 32-bit
// words, 1 float32, 2 bfloat16 or 4 FP8 values of one output each, and the words of a tile's 64 outputs lie
// side by side:
//   words (tiles, padded_in / per_word, 64)
// so vector lanes run over outputs, one stream of memory is read from front to back, and a word's values are
// taken apart with shifts. For float32 and bfloat16 this is what oneDNN calls BA16a64b and BA16a64b2a: one
// copy serves its kernels and ours. Padding is zero.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "compute/cpu/memory.h"
#include "compute/cpu/workers.h"
#include "compute/ops.h"

namespace sluice::compute::cpu {

constexpr int64_t kTileOut = 64;
constexpr int64_t kPadIn = 32;  // what BA16a64b2a pads to
// Inputs that one pass of the kernels covers, and the most columns an FP8 scale block may have.
constexpr int64_t kBlockIn = 128;

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

class PackedMatrix {
 public:
  // Refuses what the kernels cannot handle: other types, FP8 without scales, scale blocks that would cut a
  // tile or a word, and FP8 NaN codes (no multiplication by a decoded value would show them).
  static Result<PackedMatrix> pack(const WeightSource& source, Workers& workers);

  DType dtype() const { return dtype_; }
  int64_t out() const { return out_; }
  int64_t in() const { return in_; }
  int64_t padded_in() const { return round_up(in_, kPadIn); }
  int64_t tiles() const { return (out_ + kTileOut - 1) / kTileOut; }
  int64_t per_word() const { return 4 / static_cast<int64_t>(dtype_bytes(dtype_)); }
  size_t bytes() const { return words_.bytes() + scales_.size() * sizeof(float); }

  const uint32_t* tile(int64_t index) const {
    return static_cast<const uint32_t*>(words_.data()) + index * tile_words();
  }
  // FP8 only: one scale per tile and block of block_in() inputs, (tiles, blocks).
  int64_t block_in() const { return block_in_; }
  const float* tile_scales(int64_t index) const { return scales_.data() + index * blocks_in(); }

  // Row `row` (in) as float32: exact for float32 and bfloat16, value x scale for FP8.
  void read_row(int64_t row, float* out) const;

 private:
  int64_t tile_words() const { return padded_in() / per_word() * kTileOut; }
  int64_t blocks_in() const { return (in_ + block_in_ - 1) / block_in_; }
  Status pack_scales(const WeightSource& source);
  bool pack_tile(const WeightSource& source, int64_t index);

  DType dtype_ = DType::float32;
  int64_t out_ = 0;
  int64_t in_ = 0;
  int64_t block_in_ = kBlockIn;
  Memory words_;
  std::vector<float> scales_;
};

class CpuWeight : public Weight {
 public:
  explicit CpuWeight(PackedMatrix matrix) : matrix_(std::move(matrix)) {}
  int64_t out() const override { return matrix_.out(); }
  int64_t in() const override { return matrix_.in(); }
  size_t bytes() const override { return matrix_.bytes(); }
  const PackedMatrix& matrix() const { return matrix_; }

 private:
  PackedMatrix matrix_;
};

}  // namespace sluice::compute::cpu
