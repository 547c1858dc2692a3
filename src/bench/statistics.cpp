#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace sluice::bench {

void Slowest::append(const Slowest& more) {
  dispatch.insert(dispatch.end(), more.dispatch.begin(), more.dispatch.end());
  combine.insert(combine.end(), more.combine.begin(), more.combine.end());
  both.insert(both.end(), more.both.begin(), more.both.end());
}

Slowest slowest_of(const std::vector<std::vector<Sample>>& samples) {
  Slowest slowest;
  const size_t repetitions = samples.empty() ? 0 : samples.front().size();
  for (size_t i = 0; i < repetitions; ++i) {
    Sample worst = samples.front()[i];
    for (const auto& rank : samples) {
      worst.begin = std::min(worst.begin, rank[i].begin);
      worst.end = std::max(worst.end, rank[i].end);
      worst.dispatch = std::max(worst.dispatch, rank[i].dispatch);
      worst.combine = std::max(worst.combine, rank[i].combine);
    }
    slowest.dispatch.push_back(static_cast<double>(worst.dispatch));
    slowest.combine.push_back(static_cast<double>(worst.combine));
    slowest.both.push_back(static_cast<double>(worst.end - worst.begin));
  }
  return slowest;
}

double percentile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(fraction * static_cast<double>(values.size())) - 1;
  return values[static_cast<size_t>(std::clamp(rank, 0.0, static_cast<double>(values.size() - 1)))];
}

}  // namespace sluice::bench
