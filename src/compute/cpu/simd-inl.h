// Vector building blocks, compiled once per instruction set: loads and stores of float32 and bfloat16, exp,
// and sums in an order that no instruction set changes. Include only after hwy/highway.h, between
// foreach_target rounds. Every multiply-add is written as MulAdd: one rounding wherever the processor can.
#if defined(SLUICE_COMPUTE_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_COMPUTE_CPU_SIMD_INL_H_
#undef SLUICE_COMPUTE_CPU_SIMD_INL_H_
#else
#define SLUICE_COMPUTE_CPU_SIMD_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compute::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using WordTag = hn::ScalableTag<uint32_t>;
using SignedTag = hn::ScalableTag<int32_t>;
using HalfTag = hn::Rebind<uint16_t, FloatTag>;
using Floats = hn::Vec<FloatTag>;
using Words = hn::Vec<WordTag>;

constexpr int64_t kLanes = HWY_LANES(float);
// Sums run over 16 chains whatever the vector's width, so that their order is everywhere the same.
constexpr int64_t kChains = 16;
constexpr int64_t kParts = kChains / kLanes;
static_assert(kChains % kLanes == 0);

HWY_INLINE Floats load(const float* from) { return hn::LoadU(FloatTag(), from); }

HWY_INLINE Floats load(const uint16_t* from) {
  const Words bits = hn::PromoteTo(WordTag(), hn::LoadU(HalfTag(), from));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE void store(Floats value, float* to) { hn::StoreU(value, FloatTag(), to); }

// Rounds to nearest even; a NaN stays a quiet NaN: float_to_bfloat16 of base/dtype.h.
HWY_INLINE void store(Floats value, uint16_t* to) {
  const WordTag d;
  const Words bits = hn::BitCast(d, value);
  const Words high = hn::ShiftRight<16>(bits);
  const Words odd = hn::And(high, hn::Set(d, 1U));
  const Words rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7fffU)), odd));
  const auto nan = hn::RebindMask(d, hn::IsNaN(value));
  const Words result = hn::IfThenElse(nan, hn::Or(high, hn::Set(d, 0x40U)), rounded);
  hn::StoreU(hn::DemoteTo(HalfTag(), hn::BitCast(SignedTag(), result)), HalfTag(), to);
}

// The first `count` lanes; the others are zero. For the ends of rows.
template <class T>
HWY_INLINE Floats load_up_to(const T* from, int64_t count) {
  if (HWY_LIKELY(count >= kLanes)) return load(from);
  HWY_ALIGN T staged[kLanes] = {};
  if (count > 0) std::memcpy(staged, from, static_cast<size_t>(count) * sizeof(T));
  return load(staged);
}

template <class T>
HWY_INLINE void store_up_to(Floats value, T* to, int64_t count) {
  if (HWY_LIKELY(count >= kLanes)) return store(value, to);
  HWY_ALIGN T staged[kLanes];
  store(value, staged);
  if (count > 0) std::memcpy(to, staged, static_cast<size_t>(count) * sizeof(T));
}

// A sum of 16 interleaved chains: element i belongs to chain i % 16.
struct ChainSum {
  Floats part[kParts];

  HWY_INLINE ChainSum() {
    for (int64_t p = 0; p < kParts; ++p) part[p] = hn::Zero(FloatTag());
  }
  // ((0+8)+(4+12)) + ... : halves are folded onto each other.
  HWY_INLINE float total() const {
    HWY_ALIGN float chain[kChains];
    for (int64_t p = 0; p < kParts; ++p) hn::Store(part[p], FloatTag(), chain + p * kLanes);
    for (int64_t width = kChains / 2; width > 0; width /= 2) {
      for (int64_t i = 0; i < width; ++i) chain[i] = chain[i] + chain[i + width];
    }
    return chain[0];
  }
};

// Calls kernel(std::integral_constant<int, count>()) for 1 <= count <= 6: from a number of rows to a register
// tile of so many.
constexpr int kMaxRows = 6;
template <class Kernel>
HWY_INLINE void with_rows(int64_t count, const Kernel& kernel) {
  switch (count) {
    case 1:
      return kernel(std::integral_constant<int, 1>());
    case 2:
      return kernel(std::integral_constant<int, 2>());
    case 3:
      return kernel(std::integral_constant<int, 3>());
    case 4:
      return kernel(std::integral_constant<int, 4>());
    case 5:
      return kernel(std::integral_constant<int, 5>());
    default:
      return kernel(std::integral_constant<int, 6>());
  }
}

// Cuts `rows` into tiles of at most kMaxRows, as even as possible (7 rows are 4 + 3, not 6 + 1), and calls
// kernel(first row, std::integral_constant<int, rows of the tile>()).
template <class Kernel>
HWY_INLINE void for_row_tiles(int64_t rows, const Kernel& kernel) {
  int64_t tiles_left = (rows + kMaxRows - 1) / kMaxRows;
  for (int64_t row = 0; row < rows; --tiles_left) {
    const int64_t count = (rows - row + tiles_left - 1) / tiles_left;
    with_rows(count, [&](auto tile_rows) { kernel(row, tile_rows); });
    row += count;
  }
}

// e^x within 2 ulp (1 ulp mostly); NaN stays NaN, results below the smallest subnormal are 0.
// x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts (Cody and Waite); e^r by its Taylor polynomial of
// degree 7, whose remainder there is below 2^-31.
HWY_INLINE Floats exp(Floats x) {
  const FloatTag d;
  const SignedTag di;
  // Beyond these the result is infinite or zero all the same; Max and Min would lose a NaN, so it is put
  // back.
  const auto nan = hn::IsNaN(x);
  const Floats clamped = hn::Min(hn::Max(x, hn::Set(d, -110.0F)), hn::Set(d, 90.0F));
  const Floats n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504088896341F)));
  Floats r = hn::MulAdd(n, hn::Set(d, -0.693359375F), clamped);
  r = hn::MulAdd(n, hn::Set(d, 2.12194440e-4F), r);
  Floats p = hn::Set(d, 1.0F / 5040);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F / 720));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F / 120));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F / 24));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5F));
  p = hn::MulAdd(p, hn::Mul(r, r), r);
  p = hn::Add(p, hn::Set(d, 1.0F));
  // Two factors: 2^n alone leaves float's exponents at both ends.
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const Floats scale_a = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const Floats scale_b = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  const Floats result = hn::Mul(hn::Mul(p, scale_a), scale_b);
  return hn::IfThenElse(nan, x, result);
}

// x / (1 + e^-x)
HWY_INLINE Floats silu(Floats x) {
  const FloatTag d;
  return hn::Div(x, hn::Add(hn::Set(d, 1.0F), exp(hn::Neg(x))));
}

}  // namespace sluice::compute::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
