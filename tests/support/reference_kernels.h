// The arithmetic of the reference back end, row by row on float32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/matrix.h"
#include "compute/ops.h"

namespace sluice::test {

// Element access in float32; writing rounds to the matrix's type.
std::vector<float> read_row(const ConstMatrix& m, int64_t row);
void write_row(const Matrix& m, int64_t row, std::span<const float> values);
std::vector<float> read_elements(const std::byte* data, DType dtype, int64_t count);
float rounded(float value, DType dtype);

// A (out, in) matrix in float32, scales applied.
struct DenseMatrix {
  int64_t out = 0;
  int64_t in = 0;
  std::vector<float> values;
  std::span<const float> row(int64_t index) const;
};
DenseMatrix unpack(const compute::WeightSource& source);

float dot(std::span<const float> a, std::span<const float> b);
std::vector<float> times(const DenseMatrix& w, std::span<const float> x);  // w x
float silu(float x);
void normalise(std::span<float> x, std::span<const float> weight, float eps);
void rotate(std::span<float> head, int64_t position, double theta);
void softmax(std::span<float> x);

}  // namespace sluice::test
