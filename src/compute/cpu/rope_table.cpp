#include "compute/cpu/rope_table.h"

#include <algorithm>
#include <cmath>

namespace sluice::compute::cpu {

void RopeTable::reserve(double theta, int head_dim, int64_t count) {
  if (theta != theta_ || head_dim / 2 != half_) {
    theta_ = theta;
    half_ = head_dim / 2;
    count_ = 0;
  }
  if (count <= count_) return;
  // Twice what is there: a sequence that grows by a position a step recomputes seldom.
  const int64_t target = std::max<int64_t>({count, 2 * count_, 256});
  cosines_.resize(static_cast<size_t>(target * half_));
  sines_.resize(static_cast<size_t>(target * half_));
  std::vector<float> inverse_frequencies;
  for (int64_t i = 0; i < half_; ++i) {
    const double exponent = static_cast<double>(2 * i) / head_dim;
    inverse_frequencies.push_back(static_cast<float>(1.0 / std::pow(theta, exponent)));
  }
  for (int64_t position = count_; position < target; ++position) {
    for (int64_t i = 0; i < half_; ++i) {
      const float angle = static_cast<float>(position) * inverse_frequencies[static_cast<size_t>(i)];
      const auto at = static_cast<size_t>(position * half_ + i);
      cosines_[at] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sines_[at] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  count_ = target;
}

}  // namespace sluice::compute::cpu
