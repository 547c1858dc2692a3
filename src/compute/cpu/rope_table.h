// Cosines and sines of rotary embeddings, as transformers computes them: the inverse frequency and its
// product with the position are rounded to float32. Grown on demand, for one (theta, head_dim).
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::compute::cpu {

class RopeTable {
 public:
  // Makes positions [0, count) available.
  void reserve(double theta, int head_dim, int64_t count);

  // (head_dim / 2)
  const float* cosines(int64_t position) const { return cosines_.data() + position * half_; }
  const float* sines(int64_t position) const { return sines_.data() + position * half_; }

 private:
  double theta_ = 0;
  int64_t half_ = 0;
  int64_t count_ = 0;
  std::vector<float> cosines_;
  std::vector<float> sines_;
};

}  // namespace sluice::compute::cpu
