// From samples to figures: the slowest rank of every repetition, percentiles, and ratios of blocks that were
// run one after the other.
#pragma once

#include <vector>

#include "bench/contestant.h"

namespace sluice::bench {

// What the slowest rank took in each repetition, in nanoseconds.
struct Slowest {
  std::vector<double> dispatch;
  std::vector<double> combine;
  std::vector<double> both;  // from the first rank's begin to the last one's end

  void append(const Slowest& more);
};
// samples: by rank, by repetition.
Slowest slowest_of(const std::vector<std::vector<Sample>>& samples);

// The smallest value that at least `fraction` of the values do not exceed; 0 of none.
double percentile(std::vector<double> values, double fraction);
inline double median(std::vector<double> values) { return percentile(std::move(values), 0.5); }

}  // namespace sluice::bench
