#include "compute/cpu/norm_rope.h"

#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/norm_rope.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "compute/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::compute::cpu::HWY_NAMESPACE {

template <class To>
void scale_row(const float* x, const float* weight, float scale, int64_t length, To* to) {
  const Floats factor = hn::Set(FloatTag(), scale);
  for (int64_t i = 0; i < length; i += kLanes) {
    const Floats scaled = hn::Mul(load_up_to(x + i, length - i), factor);
    store_up_to(hn::Mul(scaled, load_up_to(weight + i, length - i)), to + i, length - i);
  }
}

void RmsNormRow(const float* x, const float* weight, float eps, int64_t length, DType type, void* to) {
  ChainSum squares;
  for (int64_t i = 0; i < length; i += kChains) {
    for (int64_t p = 0; p < kParts; ++p) {
      const Floats value = load_up_to(x + i + p * kLanes, length - i - p * kLanes);
      squares.part[p] = hn::MulAdd(value, value, squares.part[p]);
    }
  }
  const float scale = 1.0F / std::sqrt(squares.total() / static_cast<float>(length) + eps);
  if (type == DType::bfloat16) {
    scale_row(x, weight, scale, length, static_cast<uint16_t*>(to));
  } else {
    scale_row(x, weight, scale, length, static_cast<float*>(to));
  }
}

void RopeRow(const float* cosines, const float* sines, int64_t half, float* x) {
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t left = half - i;
    const Floats cosine = load_up_to(cosines + i, left);
    const Floats sine = load_up_to(sines + i, left);
    const Floats a = load_up_to(x + i, left);
    const Floats b = load_up_to(x + half + i, left);
    store_up_to(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), x + i, left);
    store_up_to(hn::MulAdd(a, sine, hn::Mul(b, cosine)), x + half + i, left);
  }
}

}  // namespace sluice::compute::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "compute/cpu/elementwise.h"

namespace sluice::compute::cpu {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(RopeRow);

void rms_norm_row(const float* x, const float* weight, float eps, int64_t length, DType type, void* to) {
  HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, weight, eps, length, type, to);
}
void rope_row(const float* cosines, const float* sines, int64_t half, float* x) {
  HWY_DYNAMIC_DISPATCH(RopeRow)(cosines, sines, half, x);
}

namespace {

void norm_and_rope(const RopeStep& step, const RopeTable& table, int64_t position, int heads,
                   const float* norm, float* row) {
  const int64_t head_dim = step.shape.head_dim;
  for (int h = 0; h < heads; ++h) {
    float* head = row + h * head_dim;
    if (norm != nullptr) rms_norm_row(head, norm, step.eps, head_dim, DType::float32, head);
    rope_row(table.cosines(position), table.sines(position), head_dim / 2, head);
  }
}

template <class T>
T stored(float value) {
  if constexpr (sizeof(T) == 2) {
    return float_to_bfloat16(value);
  } else {
    return value;
  }
}

template <class T>
void store_position(const RopeStep& step, const Sequence& sequence, int64_t position, const float* k,
                    const float* v, CpuKvCache& cache) {
  const int64_t head_dim = step.shape.head_dim;
  const int64_t lane = position % cache.shape().block_size % kKeyLanes;
  for (int h = 0; h < step.shape.kv_heads; ++h) {
    T* keys = cache.keys<T>() + cache.key_offset(step.layer, sequence.blocks, h, position) + lane;
    for (int64_t d = 0; d < head_dim; ++d) keys[d * kKeyLanes] = stored<T>(k[h * head_dim + d]);
    T* values = cache.values<T>() + cache.value_offset(step.layer, sequence.blocks, h, position);
    store_row(v + h * head_dim, head_dim, cache.shape().dtype, values);
  }
}

struct Token {
  const Sequence* sequence;
  int64_t index;
};

std::vector<Token> list_tokens(std::span<const Sequence> sequences) {
  std::vector<Token> tokens;
  for (const Sequence& sequence : sequences) {
    for (int64_t i = 0; i < sequence.queries; ++i) tokens.push_back({&sequence, i});
  }
  return tokens;
}

}  // namespace

void rope_and_store(const RopeStep& step, const RopeTable& table, Matrix q, Matrix k, ConstMatrix v,
                    std::span<const Sequence> sequences, CpuKvCache& cache, Workers& workers) {
  const std::vector<Token> tokens = list_tokens(sequences);
  const auto count = static_cast<int64_t>(tokens.size());
  workers.run(count, count * (q.cols + k.cols + v.cols), [&](int64_t i) {
    const Token& token = tokens[static_cast<size_t>(i)];
    const int64_t row = token.sequence->first_row + token.index;
    const int64_t position = token.sequence->start + token.index;
    norm_and_rope(step, table, position, step.shape.query_heads, step.q_norm, q.row<float>(row));
    norm_and_rope(step, table, position, step.shape.kv_heads, step.k_norm, k.row<float>(row));
    if (cache.shape().dtype == DType::bfloat16) {
      store_position<uint16_t>(step, *token.sequence, position, k.row<float>(row), v.row<float>(row), cache);
    } else {
      store_position<float>(step, *token.sequence, position, k.row<float>(row), v.row<float>(row), cache);
    }
  });
}

}  // namespace sluice::compute::cpu
#endif
