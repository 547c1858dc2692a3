#include "bench/streams.h"

#include <algorithm>

namespace sluice::bench {
namespace {

// The accumulators stay in the first-level cache while the rows stream by.
constexpr int64_t kBlock = 1024;

template <class Element>
[[gnu::always_inline]] inline float widen(Element value) {
  if constexpr (sizeof(Element) == 2) {
    return bfloat16_to_float(value);
  } else {
    return value;
  }
}

template <class Element>
[[gnu::always_inline]] inline void add(std::span<const void* const> rows, void* out, DType out_type,
                                       int64_t n) {
  alignas(64) float scratch[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    float* __restrict sum = out_type == DType::float32 ? static_cast<float*>(out) + begin : scratch;
    const auto* __restrict first = static_cast<const Element*>(rows[0]) + begin;
    for (int64_t i = 0; i < count; ++i) sum[i] = widen(first[i]);
    for (const void* const row : rows.subspan(1)) {
      const auto* __restrict next = static_cast<const Element*>(row) + begin;
      for (int64_t i = 0; i < count; ++i) sum[i] += widen(next[i]);
    }
    if (out_type == DType::float32) continue;
    auto* __restrict narrow = static_cast<uint16_t*>(out) + begin;
    // Finite values only: half of the rounding that float_to_bfloat16() does.
    for (int64_t i = 0; i < count; ++i) {
      const auto bits = std::bit_cast<uint32_t>(sum[i]);
      narrow[i] = static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
    }
  }
}

[[gnu::always_inline]] inline void add_any(std::span<const void* const> rows, DType type, void* out,
                                           DType out_type, int64_t n) {
  if (type == DType::bfloat16) {
    add<uint16_t>(rows, out, out_type, n);
  } else {
    add<float>(rows, out, out_type, n);
  }
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void add_avx2(std::span<const void* const> rows, DType type, void* out,
                                      DType out_type, int64_t n) {
  add_any(rows, type, out, out_type, n);
}
#endif

}  // namespace

void add_rows(std::span<const void* const> rows, DType type, void* out, DType out_type, int64_t n) {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) return add_avx2(rows, type, out, out_type, n);
#endif
  add_any(rows, type, out, out_type, n);
}

}  // namespace sluice::bench
