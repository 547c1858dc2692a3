// The bytes of one put: what a dispatch and a combine look like on the wire. Sizes and offsets follow from
// the shape and the two counts in the header, so no offset travels and none has to be trusted.
//
//   dispatch: DispatchHeader | int32 pairs of each local expert | PairEntry of each pair |
//             float32 weight of each pair (not in exact mode) | rows, each padded to 64 bytes
//   combine:  CombineHeader | rows: one a pair in exact mode, else one a dispatched row
//
// Pairs are listed row by row, within a row in top-k order. Padding is zero, so equal routing gives equal
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exchange/exchange.h"

namespace sluice::exchange {

inline constexpr uint32_t kMessageVersion = 2;
inline constexpr size_t kRowAlignment = 64;
inline constexpr int kMaxTopK = 16;
inline constexpr int kMaxRanks = 4096;

enum HeaderFlag : uint32_t {
  kHasWork = 1u << 0,
  kWantsEpoch = 1u << 1,
  kExact = 1u << 2,
  kBfloat16 = 1u << 3,
  kMore = 1u << 4,
  kStepFlags = kHasWork | kWantsEpoch | kMore,
};

struct alignas(64) DispatchHeader {
  uint32_t version;
  uint32_t flags;
  uint32_t hidden;
  uint32_t experts;  // the receiver's
  uint32_t rows;
  uint32_t pairs;
  uint32_t reserved[10];
};
static_assert(sizeof(DispatchHeader) == 64);

struct PairEntry {
  uint32_t row;     // of this message
  uint32_t expert;  // local to the receiver
};

struct alignas(64) CombineHeader {
  uint32_t version;
  uint32_t rows;
  uint32_t reserved[14];
};
static_assert(sizeof(CombineHeader) == 64);

// Byte offsets from the payload's start.
struct DispatchLayout {
  size_t counts = 0;
  size_t pairs = 0;
  size_t weights = 0;
  size_t rows = 0;
  size_t end = 0;
};

constexpr size_t align_row(size_t bytes) {
  return (bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

// A rank alone sends nothing, so nothing is rounded to a wire type; exact mode rounds all the same, because
// its results must not depend on the number of ranks.
inline Shape without_needless_rounding(Shape shape) {
  if (shape.ranks == 1 && !shape.exact) shape.wire = DType::float32;
  return shape;
}

// Bytes from one row to the next.
inline size_t row_stride(const Shape& shape) {
  return align_row(static_cast<size_t>(shape.hidden) * dtype_bytes(shape.wire));
}

inline DispatchLayout dispatch_layout(const Shape& shape, size_t experts, size_t rows, size_t pairs) {
  DispatchLayout at;
  at.counts = sizeof(DispatchHeader);
  at.pairs = at.counts + experts * sizeof(uint32_t);
  at.weights = at.pairs + pairs * sizeof(PairEntry);
  at.rows = align_row(at.weights + (shape.exact ? 0 : pairs * sizeof(float)));
  at.end = at.rows + rows * row_stride(shape);
  return at;
}

// Exact mode returns float32: rounding each expert's row by itself is several times noisier than rounding
// their sum, and swayed routers downstream.
inline DType returned_type(const Shape& shape) { return shape.exact ? DType::float32 : shape.wire; }

inline size_t returned_stride(const Shape& shape) {
  return align_row(static_cast<size_t>(shape.hidden) * dtype_bytes(returned_type(shape)));
}

inline size_t combine_bytes(const Shape& shape, size_t rows) {
  return sizeof(CombineHeader) + rows * returned_stride(shape);
}

// The header flags that follow from the shape, equal on all ranks.
inline uint32_t shape_flags(const Shape& shape) {
  return (shape.exact ? kExact : 0u) | (shape.wire == DType::bfloat16 ? kBfloat16 : 0u);
}

}  // namespace sluice::exchange
