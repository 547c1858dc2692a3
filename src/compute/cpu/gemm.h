// Products with packed weights, exact in their order: every output element is one chain of fused
// multiply-adds over the inputs in ascending order (FP8: one chain per scale block from zero, then sum =
// fma(block, scale, sum), blocks ascending). Vector lanes run over outputs, so the result of a row depends
// neither on the vector's width, nor on the rows beside it, nor on how tiles are shared among threads.
#pragma once

#include <cstdint>

#include "compute/cpu/pack.h"

namespace sluice::compute::cpu {

// Most rows of one gemm_tile call: keeps its sums in the first cache.
constexpr int64_t kRowChunk = 96;

// Elements from one row of a kernel's float32 input to the next, for `columns` padded inputs. The odd cache
// line keeps rows of a power-of-two length from evicting one another.
constexpr int64_t padded_stride(int64_t columns) { return columns + 16; }

// sums (rows, 64) = x (rows, padded_in) tile^T; x float32, zero beyond w.in(); rows <= kRowChunk.
void gemm_tile(const PackedMatrix& w, int64_t tile, const float* x, int64_t x_stride, int64_t rows,
               float* sums);

// The name of the instruction set that the kernels run on here: "AVX-512", "AVX2", "SSE4", "NEON".
const char* kernel_instruction_set();

}  // namespace sluice::compute::cpu
