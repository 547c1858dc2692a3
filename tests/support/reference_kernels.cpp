#include "support/reference_kernels.h"

#include <algorithm>
#include <cmath>

namespace sluice::test {

float rounded(float value, DType dtype) {
  return dtype == DType::bfloat16 ? bfloat16_to_float(float_to_bfloat16(value)) : value;
}

std::vector<float> read_elements(const std::byte* data, DType dtype, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::float32:
        values[i] = reinterpret_cast<const float*>(data)[i];
        break;
      case DType::bfloat16:
        values[i] = bfloat16_to_float(reinterpret_cast<const uint16_t*>(data)[i]);
        break;
      case DType::float8_e4m3:
        values[i] = float8_e4m3_to_float(reinterpret_cast<const uint8_t*>(data)[i]);
        break;
      case DType::int32:
        values[i] = static_cast<float>(reinterpret_cast<const int32_t*>(data)[i]);
        break;
    }
  }
  return values;
}

std::vector<float> read_row(const ConstMatrix& m, int64_t row) {
  return read_elements(m.row_bytes(row), m.dtype, m.cols);
}

void write_row(const Matrix& m, int64_t row, std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (m.dtype == DType::bfloat16) {
      m.row<uint16_t>(row)[i] = float_to_bfloat16(values[i]);
    } else {
      m.row<float>(row)[i] = values[i];
    }
  }
}

std::span<const float> DenseMatrix::row(int64_t index) const {
  return std::span(values).subspan(static_cast<size_t>(index * in), static_cast<size_t>(in));
}

DenseMatrix unpack(const compute::WeightSource& source) {
  DenseMatrix w{.out = source.out, .in = source.in, .values = {}};
  w.values = read_elements(static_cast<const std::byte*>(source.data), source.dtype, source.out * source.in);
  if (source.dtype != DType::float8_e4m3) return w;
  const int64_t blocks_across = (source.in + source.block_cols - 1) / source.block_cols;
  for (int64_t o = 0; o < source.out; ++o) {
    for (int64_t i = 0; i < source.in; ++i) {
      const int64_t block = o / source.block_rows * blocks_across + i / source.block_cols;
      w.values[static_cast<size_t>(o * source.in + i)] *= source.scales[block];
    }
  }
  return w;
}

float dot(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kLanes = 8;
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<float> times(const DenseMatrix& w, std::span<const float> x) {
  std::vector<float> y(static_cast<size_t>(w.out));
  for (int64_t o = 0; o < w.out; ++o) y[static_cast<size_t>(o)] = dot(w.row(o), x);
  return y;
}

float silu(float x) { return x / (1.0F + std::exp(-x)); }

void normalise(std::span<float> x, std::span<const float> weight, float eps) {
  const float mean_square = dot(x, x) / static_cast<float>(x.size());
  const float scale = 1.0F / std::sqrt(mean_square + eps);
  for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] * scale * weight[i];
}

void rotate(std::span<float> head, int64_t position, double theta) {
  const size_t half = head.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    // transformers computes frequency and angle in float32
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head.size());
    const auto frequency = static_cast<float>(1.0 / std::pow(theta, exponent));
    const float angle = static_cast<float>(position) * frequency;
    const float cosine = std::cos(angle);
    const float sine = std::sin(angle);
    const float first = head[i];
    const float second = head[i + half];
    head[i] = first * cosine - second * sine;
    head[i + half] = second * cosine + first * sine;
  }
}

void softmax(std::span<float> x) {
  const float largest = *std::max_element(x.begin(), x.end());
  float sum = 0;
  for (float& value : x) sum += value = std::exp(value - largest);
  for (float& value : x) value /= sum;
}

}  // namespace sluice::test
