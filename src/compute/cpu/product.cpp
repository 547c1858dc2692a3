#include "compute/cpu/product.h"

#include <algorithm>

#include "compute/cpu/elementwise.h"
#include "compute/cpu/gemm.h"

namespace sluice::compute::cpu {

void product_with_own_kernels(ConstMatrix x, const PackedMatrix& w, Matrix out, Workers& workers,
                              Scratch& scratch) {
  const int64_t stride = padded_stride(w.padded_in());
  float* inputs = scratch.get(static_cast<size_t>(x.rows * stride));
  workers.run(x.rows, x.rows * w.in(), [&](int64_t row) {
    load_row(x.row_bytes(row), x.dtype, w.in(), w.padded_in(), inputs + row * stride);
  });

  // A tile's rows stay together, so that its weights are read from memory once, unless that leaves threads
  // idle.
  const int64_t chunks = (x.rows + kRowChunk - 1) / kRowChunk;
  const int64_t row_pieces = w.tiles() < 4 * workers.threads() ? chunks : 1;
  const int64_t chunks_each = (chunks + row_pieces - 1) / std::max<int64_t>(row_pieces, 1);
  workers.run(w.tiles() * row_pieces, x.rows * w.in() * w.out(), [&](int64_t piece) {
    alignas(kAlignment) float sums[kRowChunk * kTileOut];
    const int64_t tile = piece / row_pieces;
    const int64_t column = tile * kTileOut;
    const int64_t columns = std::min(kTileOut, w.out() - column);
    const int64_t first = piece % row_pieces * chunks_each * kRowChunk;
    const int64_t last = std::min(x.rows, first + chunks_each * kRowChunk);
    for (int64_t row = first; row < last; row += kRowChunk) {
      const int64_t rows = std::min(kRowChunk, last - row);
      gemm_tile(w, tile, inputs + row * stride, stride, rows, sums);
      for (int64_t r = 0; r < rows; ++r) {
        std::byte* to = out.row_bytes(row + r) + static_cast<size_t>(column) * dtype_bytes(out.dtype);
        store_row(sums + r * kTileOut, columns, out.dtype, to);
      }
    }
  });
}

}  // namespace sluice::compute::cpu
