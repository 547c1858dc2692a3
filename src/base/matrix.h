// Views of row-major matrices in some device's memory. They own nothing and check nothing: who makes one
// vouches for the memory behind it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace sluice {

struct Matrix {
  void* data = nullptr;
  DType dtype = DType::float32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from one row to the next

  std::byte* row_bytes(int64_t row) const {
    return static_cast<std::byte*>(data) + static_cast<size_t>(row * stride) * dtype_bytes(dtype);
  }
  template <class T>
  T* row(int64_t index) const {
    return reinterpret_cast<T*>(row_bytes(index));
  }
  // The first `count` rows.
  Matrix top(int64_t count) const { return {data, dtype, count, cols, stride}; }
};

struct ConstMatrix {
  const void* data = nullptr;
  DType dtype = DType::float32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  ConstMatrix() = default;
  ConstMatrix(const void* data_, DType dtype_, int64_t rows_, int64_t cols_, int64_t stride_)
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_) {}
  ConstMatrix(const Matrix& m) : data(m.data), dtype(m.dtype), rows(m.rows), cols(m.cols), stride(m.stride) {}

  const std::byte* row_bytes(int64_t row) const {
    return static_cast<const std::byte*>(data) + static_cast<size_t>(row * stride) * dtype_bytes(dtype);
  }
  template <class T>
  const T* row(int64_t index) const {
    return reinterpret_cast<const T*>(row_bytes(index));
  }
};

}  // namespace sluice
