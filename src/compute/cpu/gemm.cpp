#include "compute/cpu/gemm.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/gemm.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "compute/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compute::cpu::HWY_NAMESPACE {

// How a 32-bit word of a packed tile comes apart into the values of consecutive inputs.
struct Float32Words {
  static constexpr int kPerWord = 1;
  template <int kIndex>
  static HWY_INLINE Floats value(Words word) {
    return hn::BitCast(FloatTag(), word);
  }
};

struct Bfloat16Words {
  static constexpr int kPerWord = 2;
  template <int kIndex>
  static HWY_INLINE Floats value(Words word) {
    if constexpr (kIndex == 0) {
      return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(word));
    } else {
      return hn::BitCast(FloatTag(), hn::And(word, hn::Set(WordTag(), 0xffff0000U)));
    }
  }
};

struct Fp8Words {
  static constexpr int kPerWord = 4;
  // Exponent and mantissa of the code move to the top of float32's fields (the arithmetic shift leaves the
  // sign where it is); the biases differ by 120, which a multiplication repairs, exactly and for subnormals
  // too.
  template <int kIndex>
  static HWY_INLINE Floats value(Words word) {
    const Words top = kIndex == 3 ? word : hn::ShiftLeft<(3 - kIndex) * 8>(word);
    const auto moved = hn::ShiftRight<4>(hn::BitCast(SignedTag(), top));
    const Words bits = hn::And(hn::BitCast(WordTag(), moved), hn::Set(WordTag(), 0x87f00000U));
    return hn::Mul(hn::BitCast(FloatTag(), bits), hn::Set(FloatTag(), 0x1p120F));
  }
};

// Register tiles: rows x vectors sums, plus the weights and the broadcast input.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
constexpr int vectors_for(int rows) { return rows <= 2 ? 4 : 2; }  // 16 registers
#else
constexpr int vectors_for(int) { return 4; }  // 32 registers
#endif

template <int kRows, int kVectors>
struct Sums {
  Floats at[kRows][kVectors];
};

// One word's inputs, from kIndex on, onto all sums.
template <class Format, int kIndex, int kRows, int kVectors>
HWY_INLINE void multiply_add(const Words (&words)[kVectors], const float* HWY_RESTRICT x, int64_t x_stride,
                             Sums<kRows, kVectors>& sums) {
  Floats w[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) w[v] = Format::template value<kIndex>(words[v]);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Floats input = hn::Set(FloatTag(), x[r * x_stride + kIndex]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums.at[r][v] = hn::MulAdd(input, w[v], sums.at[r][v]);
  }
  if constexpr (kIndex + 1 < Format::kPerWord) {
    multiply_add<Format, kIndex + 1, kRows, kVectors>(words, x, x_stride, sums);
  }
}

// Adds `words` x 64 packed words to sums (kRows, 64): in the running chain, or (kScaled) as a block of its
// own.
template <class Format, bool kScaled, int kRows>
HWY_INLINE void block_kernel(const uint32_t* HWY_RESTRICT words, int64_t word_rows,
                             const float* HWY_RESTRICT x, int64_t x_stride, float scale,
                             float* HWY_RESTRICT sums) {
  constexpr int kVectors = vectors_for(kRows);
  for (int64_t column = 0; column < kTileOut; column += kVectors * kLanes) {
    Sums<kRows, kVectors> chain;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        chain.at[r][v] = kScaled ? hn::Zero(FloatTag()) : load(sums + r * kTileOut + column + v * kLanes);
      }
    }
    for (int64_t i = 0; i < word_rows; ++i) {
      Words word[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        word[v] = hn::LoadU(WordTag(), words + i * kTileOut + column + v * kLanes);
      multiply_add<Format, 0, kRows, kVectors>(word, x + i * Format::kPerWord, x_stride, chain);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* to = sums + r * kTileOut + column + v * kLanes;
        store(kScaled ? hn::MulAdd(chain.at[r][v], hn::Set(FloatTag(), scale), load(to)) : chain.at[r][v],
              to);
      }
    }
  }
}

template <class Format, bool kScaled>
HWY_NOINLINE void block_rows(const uint32_t* words, int64_t word_rows, const float* x, int64_t x_stride,
                             int64_t rows, float scale, float* sums) {
  for_row_tiles(rows, [&](int64_t row, auto tile_rows) {
    block_kernel<Format, kScaled, decltype(tile_rows)::value>(words, word_rows, x + row * x_stride, x_stride,
                                                              scale, sums + row * kTileOut);
  });
}

template <class Format, int kIndex = 0>
HWY_INLINE void expand_word(Words word, float* to) {
  store(Format::template value<kIndex>(word), to + kIndex * kTileOut);
  if constexpr (kIndex + 1 < Format::kPerWord) expand_word<Format, kIndex + 1>(word, to);
}

// FP8 words to float32 words, for blocks that several row tiles read.
void expand_fp8(const uint32_t* words, int64_t word_rows, float* out) {
  for (int64_t i = 0; i < word_rows; ++i) {
    for (int64_t lane = 0; lane < kTileOut; lane += kLanes) {
      expand_word<Fp8Words>(hn::LoadU(WordTag(), words + i * kTileOut + lane),
                            out + i * Fp8Words::kPerWord * kTileOut + lane);
    }
  }
}

void gemm_tile_fp8(const PackedMatrix& w, int64_t tile, const float* x, int64_t x_stride, int64_t rows,
                   float* sums) {
  alignas(kAlignment) uint32_t expanded[kBlockIn * kTileOut];
  const float* scales = w.tile_scales(tile);
  for (int64_t k = 0; k < w.in(); k += w.block_in()) {
    const int64_t inputs = std::min(w.block_in(), w.padded_in() - k);
    const uint32_t* words = w.tile(tile) + k / Fp8Words::kPerWord * kTileOut;
    const float scale = scales[k / w.block_in()];
    if (rows <= kMaxRows) {
      block_rows<Fp8Words, true>(words, inputs / Fp8Words::kPerWord, x + k, x_stride, rows, scale, sums);
    } else {
      expand_fp8(words, inputs / Fp8Words::kPerWord, reinterpret_cast<float*>(expanded));
      block_rows<Float32Words, true>(expanded, inputs, x + k, x_stride, rows, scale, sums);
    }
  }
}

template <class Format>
void gemm_tile_plain(const PackedMatrix& w, int64_t tile, const float* x, int64_t x_stride, int64_t rows,
                     float* sums) {
  for (int64_t k = 0; k < w.padded_in(); k += kBlockIn) {
    const int64_t inputs = std::min(kBlockIn, w.padded_in() - k);
    const uint32_t* words = w.tile(tile) + k / Format::kPerWord * kTileOut;
    block_rows<Format, false>(words, inputs / Format::kPerWord, x + k, x_stride, rows, 1.0F, sums);
  }
}

void GemmTile(const PackedMatrix& w, int64_t tile, const float* x, int64_t x_stride, int64_t rows,
              float* sums) {
  std::fill(sums, sums + rows * kTileOut, 0.0F);
  switch (w.dtype()) {
    case DType::bfloat16:
      return gemm_tile_plain<Bfloat16Words>(w, tile, x, x_stride, rows, sums);
    case DType::float8_e4m3:
      return gemm_tile_fp8(w, tile, x, x_stride, rows, sums);
    default:
      return gemm_tile_plain<Float32Words>(w, tile, x, x_stride, rows, sums);
  }
}

const char* InstructionSet() {
#if HWY_TARGET == HWY_AVX3
  return "AVX-512";
#else
  return hwy::TargetName(HWY_TARGET);
#endif
}

}  // namespace sluice::compute::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compute::cpu {

HWY_EXPORT(GemmTile);
HWY_EXPORT(InstructionSet);

void gemm_tile(const PackedMatrix& w, int64_t tile, const float* x, int64_t x_stride, int64_t rows,
               float* sums) {
  HWY_DYNAMIC_DISPATCH(GemmTile)(w, tile, x, x_stride, rows, sums);
}

const char* kernel_instruction_set() { return HWY_DYNAMIC_DISPATCH(InstructionSet)(); }

}  // namespace sluice::compute::cpu
#endif
