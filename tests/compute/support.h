// What the tests of the CPU back end share: random data of every type with its exact values, comparisons, and
// runs under each instruction set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/matrix.h"
#include "compute/ops.h"

namespace sluice::compute {

// A matrix with storage of its own.
struct HostMatrix {
  HostMatrix() = default;
  HostMatrix(DType type, int64_t rows, int64_t cols, int64_t stride = 0);

  Matrix view() { return {bytes.data(), dtype, rows, cols, stride}; }
  ConstMatrix view() const { return {bytes.data(), dtype, rows, cols, stride}; }
  float at(int64_t row, int64_t col) const;
  void set(int64_t row, int64_t col, float value);  // rounds to dtype
  // The elements of one row as they lie in memory.
  std::vector<std::byte> row_bits(int64_t row) const;

  DType dtype = DType::float32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  std::vector<std::byte> bytes;
};

using Random = std::mt19937;

HostMatrix random_matrix(Random& random, DType type, int64_t rows, int64_t cols, float scale = 1.0F);

// A weight as a checkpoint holds it, and the numbers it stands for.
struct HostWeight {
  WeightSource source() const;
  double at(int64_t row, int64_t col) const { return values[static_cast<size_t>(row * in + col)]; }

  DType dtype = DType::float32;
  int64_t out = 0;
  int64_t in = 0;
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  std::vector<double> values;
  int block = 128;
};

HostWeight random_weight(Random& random, DType type, int64_t out, int64_t in, float scale = 1.0F);

std::unique_ptr<Backend> make_backend(DType activations, bool deterministic, int threads = 1);

// Calls body under each instruction set that this processor has and the kernels are compiled for, the best
// first; `name` as Highway calls it ("AVX3", "AVX2", "SSE4"). Afterwards the best is back.
void for_each_instruction_set(const std::function<void(const std::string& name)>& body);
// Whether products there use fused multiply-adds, whose bits all of them share.
bool has_fused_multiply_add(const std::string& name);

}  // namespace sluice::compute
