#include "compute/cpu/elementwise.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/elementwise.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "compute/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compute::cpu::HWY_NAMESPACE {

template <class From, class To>
void convert(const From* from, int64_t length, To* to) {
  for (int64_t i = 0; i < length; i += kLanes)
    store_up_to(load_up_to(from + i, length - i), to + i, length - i);
}

void LoadRow(const void* from, DType type, int64_t length, int64_t padded, float* to) {
  if (type == DType::bfloat16) {
    convert(static_cast<const uint16_t*>(from), length, to);
  } else {
    convert(static_cast<const float*>(from), length, to);
  }
  std::fill(to + length, to + padded, 0.0F);
}

void StoreRow(const float* from, int64_t length, DType type, void* to) {
  if (type == DType::bfloat16) {
    convert(from, length, static_cast<uint16_t*>(to));
  } else {
    convert(from, length, static_cast<float*>(to));
  }
}

void RoundRow(float* row, int64_t length, DType type) {
  if (type != DType::bfloat16) return;
  HWY_ALIGN uint16_t rounded[kLanes];
  for (int64_t i = 0; i < length; i += kLanes) {
    store(load_up_to(row + i, length - i), rounded);
    store_up_to(load(rounded), row + i, length - i);
  }
}

void AddRow(const float* from, int64_t length, float* to) {
  for (int64_t i = 0; i < length; i += kLanes) {
    store_up_to(hn::Add(load_up_to(to + i, length - i), load_up_to(from + i, length - i)), to + i,
                length - i);
  }
}

void SiluMulRow(const float* gate, const float* up, int64_t length, float* to) {
  for (int64_t i = 0; i < length; i += kLanes) {
    const Floats product = hn::Mul(silu(load_up_to(gate + i, length - i)), load_up_to(up + i, length - i));
    store_up_to(product, to + i, length - i);
  }
}

void ExpRow(const float* from, int64_t length, float* to) {
  for (int64_t i = 0; i < length; i += kLanes)
    store_up_to(exp(load_up_to(from + i, length - i)), to + i, length - i);
}

void SoftmaxRow(float* row, int64_t length) {
  const FloatTag d;
  const float largest = *std::max_element(row, row + length);
  ChainSum sum;
  for (int64_t i = 0; i < length; i += kChains) {
    for (int64_t p = 0; p < kParts; ++p) {
      const int64_t at = i + p * kLanes;
      if (at >= length) break;
      store_up_to(exp(hn::Sub(load_up_to(row + at, length - at), hn::Set(d, largest))), row + at,
                  length - at);
      sum.part[p] = hn::Add(sum.part[p], load_up_to(row + at, length - at));
    }
  }
  const Floats total = hn::Set(d, sum.total());
  for (int64_t i = 0; i < length; i += kLanes) {
    store_up_to(hn::Div(load_up_to(row + i, length - i), total), row + i, length - i);
  }
}

}  // namespace sluice::compute::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::compute::cpu {

HWY_EXPORT(LoadRow);
HWY_EXPORT(StoreRow);
HWY_EXPORT(RoundRow);
HWY_EXPORT(AddRow);
HWY_EXPORT(SiluMulRow);
HWY_EXPORT(ExpRow);
HWY_EXPORT(SoftmaxRow);

void load_row(const void* from, DType type, int64_t length, int64_t padded, float* to) {
  HWY_DYNAMIC_DISPATCH(LoadRow)(from, type, length, padded, to);
}
void store_row(const float* from, int64_t length, DType type, void* to) {
  HWY_DYNAMIC_DISPATCH(StoreRow)(from, length, type, to);
}
void round_row(float* row, int64_t length, DType type) { HWY_DYNAMIC_DISPATCH(RoundRow)(row, length, type); }
void add_row(const float* from, int64_t length, float* to) { HWY_DYNAMIC_DISPATCH(AddRow)(from, length, to); }
void silu_mul_row(const float* gate, const float* up, int64_t length, float* to) {
  HWY_DYNAMIC_DISPATCH(SiluMulRow)(gate, up, length, to);
}
void exp_row(const float* from, int64_t length, float* to) { HWY_DYNAMIC_DISPATCH(ExpRow)(from, length, to); }
void softmax_row(float* row, int64_t length) { HWY_DYNAMIC_DISPATCH(SoftmaxRow)(row, length); }

}  // namespace sluice::compute::cpu
#endif
