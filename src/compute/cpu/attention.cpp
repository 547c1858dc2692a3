#include "compute/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "compute/cpu/attention_piece.h"
#include "compute/cpu/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/attention.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "compute/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compute::cpu::HWY_NAMESPACE {

// Vectors of a register tile; at least one group of key lanes.
#if HWY_TARGET == HWY_AVX2
constexpr int kVectors = 2;
#else
constexpr int kVectors = 4;
#endif
constexpr int64_t kGroupsPerCall = kVectors * kLanes / kKeyLanes;
static_assert(kGroupsPerCall >= 1);
// Behind a row's scores there is room for the lanes that a last call computes for nobody.
constexpr int64_t kScoreStride = kTilePositions + kVectors * kLanes;
constexpr int64_t kMostSumStride = kMostHeadDim + kKeyLanes;

// What a piece carries from tile to tile, and the tile's scores.
struct State {
  HWY_ALIGN float scores[kPieceRows * kScoreStride];
  HWY_ALIGN float sums[kPieceRows * kMostSumStride];
  const float* queries[kPieceRows];
  float largest[kPieceRows];
  float total[kPieceRows];
  float correction[kPieceRows];
  int64_t sum_stride;
};

// The keys and values of a tile's positions, wherever their blocks are.
template <class T>
struct Tile {
  int64_t first;            // position
  int64_t group_positions;  // positions per group of key lanes
  int64_t groups;
  const T* keys[kTilePositions + kGroupsPerCall];
  const T* values[kTilePositions];

  Tile(const AttentionPiece& piece, int64_t first_position, int64_t positions) : first(first_position) {
    const auto& blocks = piece.sequence->blocks;
    group_positions = piece.step->cache.group_positions();
    groups = (positions + group_positions - 1) / group_positions;
    for (int64_t g = 0; g < groups; ++g) {
      keys[g] =
          piece.step->cache.keys<T>() +
          piece.step->cache.key_offset(piece.step->layer, blocks, piece.kv_head, first + g * group_positions);
    }
    // A call's groups beyond the last are read, but nobody uses their scores.
    for (int64_t g = groups; g % kGroupsPerCall != 0; ++g) keys[g] = keys[groups - 1];
    for (int64_t i = 0; i < positions; ++i) {
      values[i] = piece.step->cache.values<T>() +
                  piece.step->cache.value_offset(piece.step->layer, blocks, piece.kv_head, first + i);
    }
  }
};

// Scores of kRows rows for kGroupsPerCall groups of key lanes, each score one chain over head_dim.
template <int kRows, class T>
HWY_INLINE void score_kernel(const Tile<T>& tile, int64_t group, const float* const* queries,
                             int64_t head_dim, float scale, float* scores) {
  const T* lanes[kVectors];
  Floats sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    lanes[v] = tile.keys[group + v * kLanes / kKeyLanes] + v * kLanes % kKeyLanes;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r][v] = hn::Zero(FloatTag());
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    Floats key[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) key[v] = load(lanes[v] + d * kKeyLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats query = hn::Set(FloatTag(), queries[r][d]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(query, key[v], sums[r][v]);
    }
  }
  // Ascending, so that a group's unused lanes are overwritten by the next group.
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = (group + v * kLanes / kKeyLanes) * tile.group_positions + v * kLanes % kKeyLanes;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      store(hn::Mul(sums[r][v], hn::Set(FloatTag(), scale)), scores + r * kScoreStride + at);
    }
  }
}

// A row's scores become e^(score - largest so far); what earlier tiles contributed is corrected by
// `correction`.
HWY_INLINE void soften(State& state, int64_t row, int64_t count) {
  const FloatTag d;
  float* scores = state.scores + row * kScoreStride;
  const Floats lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  Floats most = lowest;
  for (int64_t i = 0; i < count; i += kLanes) {
    most = hn::Max(most,
                   hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count - i)), load(scores + i), lowest));
  }
  const float largest = std::max(state.largest[row], hn::GetLane(hn::MaxOfLanes(d, most)));
  ChainSum sum;
  for (int64_t i = 0; i < count; i += kChains) {
    for (int64_t p = 0; p < kParts; ++p) {
      const int64_t at = i + p * kLanes;
      if (at >= count) break;
      const Floats weight = exp(hn::Sub(load(scores + at), hn::Set(d, largest)));
      const Floats seen = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count - at)), weight);
      sum.part[p] = hn::Add(sum.part[p], seen);
      store(seen, scores + at);
    }
  }
  const float correction = hn::GetLane(exp(hn::Set(d, state.largest[row] - largest)));
  state.total[row] = state.total[row] * correction + sum.total();
  state.correction[row] = correction;
  state.largest[row] = largest;
}

// sums (kRows, kColumns vectors) = sums x correction + weights (kRows, count) values (count, ...), each
// element one chain over the positions.
template <int kRows, int kColumns, class T>
HWY_INLINE void mix_kernel(const Tile<T>& tile, int64_t count, int64_t column, State& state, int64_t row) {
  Floats sums[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Floats correction = hn::Set(FloatTag(), state.correction[row + r]);
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      sums[r][c] = hn::Mul(load(state.sums + (row + r) * state.sum_stride + column + c * kLanes), correction);
    }
  }
  const float* weights = state.scores + row * kScoreStride;
  for (int64_t i = 0; i < count; ++i) {
    Floats value[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) value[c] = load(tile.values[i] + column + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats weight = hn::Set(FloatTag(), weights[r * kScoreStride + i]);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) sums[r][c] = hn::MulAdd(weight, value[c], sums[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      store(sums[r][c], state.sums + (row + r) * state.sum_stride + column + c * kLanes);
    }
  }
}

template <class T>
HWY_NOINLINE void mix(const Tile<T>& tile, int64_t count, int64_t width, State& state, int64_t first,
                      int64_t rows) {
  for_row_tiles(rows, [&](int64_t row, auto tile_rows) {
    constexpr int kRows = decltype(tile_rows)::value;
    int64_t column = 0;
    for (; column + kVectors * kLanes <= width; column += kVectors * kLanes) {
      mix_kernel<kRows, kVectors>(tile, count, column, state, first + row);
    }
    for (; column < width; column += kLanes) mix_kernel<kRows, 1>(tile, count, column, state, first + row);
  });
}

template <class T>
HWY_NOINLINE void fold_tile(const AttentionPiece& piece, int64_t first_position, State& state) {
  const auto count_of = [&](int64_t row) {
    return std::min(kTilePositions, piece.visible(row) - first_position);
  };
  // Rows see more and more: those before `active` see nothing of this tile.
  int64_t active = 0;
  while (count_of(active) <= 0) ++active;
  const Tile<T> tile(piece, first_position, count_of(piece.rows - 1));
  const float scale = 1.0F / std::sqrt(static_cast<float>(piece.step->shape.head_dim));
  for_row_tiles(piece.rows - active, [&](int64_t row, auto tile_rows) {
    for (int64_t group = 0; group < tile.groups; group += kGroupsPerCall) {
      score_kernel<decltype(tile_rows)::value>(tile, group, state.queries + active + row,
                                               piece.step->shape.head_dim, scale,
                                               state.scores + (active + row) * kScoreStride);
    }
  });
  for (int64_t row = active; row < piece.rows; ++row) soften(state, row, count_of(row));
  // Rows that see equally much go together; values that a row does not see must not touch it, not even
  // with weight 0: they may be infinite.
  for (int64_t row = active; row < piece.rows;) {
    int64_t end = row + 1;
    while (end < piece.rows && count_of(end) == count_of(row)) ++end;
    mix(tile, count_of(row), piece.step->cache.value_stride(), state, row, end - row);
    row = end;
  }
}

template <class T>
void attend_piece(const AttentionPiece& piece) {
  State state;
  state.sum_stride = piece.step->cache.value_stride() + kKeyLanes;
  std::fill_n(state.sums, piece.rows * state.sum_stride, 0.0F);
  for (int64_t row = 0; row < piece.rows; ++row) {
    state.queries[row] = piece.query_row(row);
    state.largest[row] = -std::numeric_limits<float>::infinity();
    state.total[row] = 0;
  }
  const int64_t positions = piece.visible(piece.rows - 1);
  for (int64_t first = 0; first < positions; first += kTilePositions) fold_tile<T>(piece, first, state);
  for (int64_t row = 0; row < piece.rows; ++row) {
    float* sums = state.sums + row * state.sum_stride;
    const Floats total = hn::Set(FloatTag(), state.total[row]);
    for (int64_t i = 0; i < piece.step->cache.value_stride(); i += kLanes)
      store(hn::Div(load(sums + i), total), sums + i);
    store_row(sums, piece.step->shape.head_dim, piece.step->out.dtype, piece.out_row(row));
  }
}

void AttendPiece(const AttentionPiece& piece) {
  if (piece.step->cache.shape().dtype == DType::bfloat16) {
    attend_piece<uint16_t>(piece);
  } else {
    attend_piece<float>(piece);
  }
}

}  // namespace sluice::compute::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compute::cpu {

HWY_EXPORT(AttendPiece);

void attend(const AttentionShape& shape, ConstMatrix q, std::span<const Sequence> sequences, int layer,
            const CpuKvCache& cache, Matrix out, Workers& workers) {
  const AttentionStep step{shape, q, layer, cache, out};
  std::vector<AttentionPiece> pieces;
  int64_t work = 0;
  for (const Sequence& sequence : sequences) {
    const int64_t rows = sequence.queries * step.group();
    work += 2 * sequence.queries * shape.query_heads * shape.head_dim * (sequence.start + sequence.queries);
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (int64_t row = 0; row < rows; row += kPieceRows) {
        pieces.push_back({&step, &sequence, head, row, std::min(kPieceRows, rows - row)});
      }
    }
  }
  // The longest first, so that no thread is left alone with one at the end.
  std::stable_sort(pieces.begin(), pieces.end(), [](const AttentionPiece& a, const AttentionPiece& b) {
    return a.visible(a.rows - 1) > b.visible(b.rows - 1);
  });
  workers.run(static_cast<int64_t>(pieces.size()), work, [&](int64_t i) {
    HWY_DYNAMIC_DISPATCH(AttendPiece)(pieces[static_cast<size_t>(i)]);
  });
}

}  // namespace sluice::compute::cpu
#endif
