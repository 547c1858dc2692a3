// One piece of attention: some rows of one sequence and key head. Apart from attention.cpp because that file
// is read once per instruction set.
#pragma once

#include "base/matrix.h"
#include "compute/cpu/kv_cache.h"
#include "compute/ops.h"

namespace sluice::compute::cpu {

constexpr int64_t kTilePositions = 64;
constexpr int64_t kPieceRows = 32;

// What all pieces of a step share.
struct AttentionStep {
  AttentionShape shape;
  ConstMatrix q;
  int layer;
  const CpuKvCache& cache;
  Matrix out;

  int64_t group() const { return shape.query_heads / shape.kv_heads; }
};

// Row r of a piece is query (first_row + r) / group, head (first_row + r) % group of the key head's group.
struct AttentionPiece {
  const AttentionStep* step;
  const Sequence* sequence;
  int kv_head;
  int64_t first_row;
  int64_t rows;

  int64_t query(int64_t row) const { return (first_row + row) / step->group(); }
  int64_t column(int64_t row) const {
    return (kv_head * step->group() + (first_row + row) % step->group()) * step->shape.head_dim;
  }
  const float* query_row(int64_t row) const {
    return step->q.row<float>(sequence->first_row + query(row)) + column(row);
  }
  std::byte* out_row(int64_t row) const {
    return step->out.row_bytes(sequence->first_row + query(row)) +
           static_cast<size_t>(column(row)) * dtype_bytes(step->out.dtype);
  }
  // Positions that the row sees.
  int64_t visible(int64_t row) const { return sequence->start + query(row) + 1; }
};

}  // namespace sluice::compute::cpu
