#include "exchange/rows.h"

#include <algorithm>
#include <cstring>

namespace sluice::exchange {
namespace {

// Elements summed at a time: the accumulators stay in the first-level cache while the rows stream by.
constexpr int64_t kBlock = 1024;

// float_to_bfloat16() without a branch, which the compiler turns into vector code. Tests hold it to the
// scalar.
inline uint16_t round_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40U;
  // A NaN's magnitude is above infinity's; both are below 2^31, so a signed comparison is right.
  const bool nan = static_cast<int32_t>(bits & 0x7fffffffU) > 0x7f800000;
  return static_cast<uint16_t>(nan ? quiet : rounded);
}

struct ReadFloat {
  using Element = float;
  static float read(float value) { return value; }
};
struct ReadBfloat16 {
  using Element = uint16_t;
  static float read(uint16_t bits) { return bfloat16_to_float(bits); }
};

template <class Read, bool first>
void accumulate(float* __restrict sum, const WeightedRow& row, int64_t begin, int64_t n) {
  const auto* __restrict data = static_cast<const typename Read::Element*>(row.data) + begin;
  const float weight = row.weight;
  for (int64_t i = 0; i < n; ++i) {
    const float product = weight * Read::read(data[i]);
    sum[i] = first ? product : sum[i] + product;
  }
}

template <bool first>
void accumulate(float* sum, const WeightedRow& row, int64_t begin, int64_t n) {
  if (row.type == DType::bfloat16) {
    accumulate<ReadBfloat16, first>(sum, row, begin, n);
  } else {
    accumulate<ReadFloat, first>(sum, row, begin, n);
  }
}

void narrow(uint16_t* __restrict to, const float* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = round_to_bfloat16(from[i]);
}

void widen(float* __restrict to, const uint16_t* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = bfloat16_to_float(from[i]);
}

}  // namespace

void convert_row(void* to, DType to_type, const void* from, DType from_type, int64_t n) {
  if (to_type == from_type) {
    std::memcpy(to, from, static_cast<size_t>(n) * dtype_bytes(to_type));
  } else if (to_type == DType::bfloat16) {
    narrow(static_cast<uint16_t*>(to), static_cast<const float*>(from), n);
  } else {
    widen(static_cast<float*>(to), static_cast<const uint16_t*>(from), n);
  }
}

void sum_rows(std::span<const WeightedRow> rows, void* out, DType out_type, int64_t n) {
  alignas(64) float scratch[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    float* sum = out_type == DType::float32 ? static_cast<float*>(out) + begin : scratch;
    accumulate<true>(sum, rows[0], begin, count);
    for (const WeightedRow& row : rows.subspan(1)) accumulate<false>(sum, row, begin, count);
    if (out_type == DType::bfloat16) narrow(static_cast<uint16_t*>(out) + begin, sum, count);
  }
}

}  // namespace sluice::exchange
