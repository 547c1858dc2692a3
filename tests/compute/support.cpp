#include "support.h"

#include <gtest/gtest.h>

#include <cstring>

#include "hwy/targets.h"

namespace sluice::compute {

HostMatrix::HostMatrix(DType type, int64_t row_count, int64_t col_count, int64_t row_stride)
    : dtype(type),
      rows(row_count),
      cols(col_count),
      stride(row_stride == 0 ? col_count : row_stride),
      bytes(static_cast<size_t>(rows * stride) * dtype_bytes(type)) {}

float HostMatrix::at(int64_t row, int64_t col) const {
  if (dtype == DType::bfloat16) return bfloat16_to_float(view().row<uint16_t>(row)[col]);
  return view().row<float>(row)[col];
}

void HostMatrix::set(int64_t row, int64_t col, float value) {
  if (dtype == DType::bfloat16) {
    view().row<uint16_t>(row)[col] = float_to_bfloat16(value);
  } else {
    view().row<float>(row)[col] = value;
  }
}

std::vector<std::byte> HostMatrix::row_bits(int64_t row) const {
  const std::byte* first = view().row_bytes(row);
  return {first, first + static_cast<size_t>(cols) * dtype_bytes(dtype)};
}

HostMatrix random_matrix(Random& random, DType type, int64_t rows, int64_t cols, float scale) {
  std::normal_distribution<float> normal(0.0F, scale);
  HostMatrix matrix(type, rows, cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) matrix.set(r, c, normal(random));
  }
  return matrix;
}

WeightSource HostWeight::source() const {
  WeightSource source{bytes.data(), dtype, out, in, nullptr, 0, 0};
  if (dtype == DType::float8_e4m3) {
    source.scales = scales.data();
    source.block_rows = block;
    source.block_cols = block;
  }
  return source;
}

HostWeight random_weight(Random& random, DType type, int64_t out, int64_t in, float scale) {
  std::normal_distribution<float> normal(0.0F, scale);
  HostWeight weight;
  weight.dtype = type;
  weight.out = out;
  weight.in = in;
  weight.bytes.resize(static_cast<size_t>(out * in) * dtype_bytes(type));
  const int64_t blocks_in = (in + weight.block - 1) / weight.block;
  const int64_t blocks_out = (out + weight.block - 1) / weight.block;
  for (int64_t b = 0; type == DType::float8_e4m3 && b < blocks_in * blocks_out; ++b) {
    weight.scales.push_back(scale / 100 * std::uniform_real_distribution<float>(0.5F, 1.5F)(random));
  }
  for (int64_t i = 0; i < out * in; ++i) {
    std::byte* to = weight.bytes.data() + static_cast<size_t>(i) * dtype_bytes(type);
    if (type == DType::float8_e4m3) {
      auto code = static_cast<uint8_t>(random());
      if ((code & 0x7fU) == 0x7fU) code ^= 1U;
      std::memcpy(to, &code, 1);
      const int64_t block = i / in / weight.block * blocks_in + i % in / weight.block;
      weight.values.push_back(static_cast<double>(float8_e4m3_to_float(code)) *
                              static_cast<double>(weight.scales[static_cast<size_t>(block)]));
    } else if (type == DType::bfloat16) {
      const uint16_t bits = float_to_bfloat16(normal(random));
      std::memcpy(to, &bits, 2);
      weight.values.push_back(static_cast<double>(bfloat16_to_float(bits)));
    } else {
      const float value = normal(random);
      std::memcpy(to, &value, 4);
      weight.values.push_back(static_cast<double>(value));
    }
  }
  return weight;
}

std::unique_ptr<Backend> make_backend(DType activations, bool deterministic, int threads) {
  auto backend = make_cpu_backend({activations, deterministic, threads});
  EXPECT_TRUE(backend.ok()) << backend.status().message();
  return std::move(backend).value();
}

void for_each_instruction_set(const std::function<void(const std::string&)>& body) {
  const int64_t supported = hwy::SupportedTargets();
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_NEON}) {
    if ((supported & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
}

bool has_fused_multiply_add(const std::string& name) { return name != "SSE4"; }

}  // namespace sluice::compute
