#include "cli/suggest.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace sluice::cli {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string suggestion(std::string_view unknown, std::span<const std::string> known) {
  const std::string* nearest = nullptr;
  int least = static_cast<int>(std::max<size_t>(2, unknown.size() / 3)) + 1;
  for (const std::string& name : known) {
    // A name cut short is near to what it starts.
    const bool start = unknown.size() >= 4 && name.starts_with(unknown);
    const int distance = start ? 1 : edit_distance(unknown, name);
    if (distance >= least) continue;
    least = distance;
    nearest = &name;
  }
  return nearest != nullptr ? fmt::format(" (did you mean {}?)", *nearest) : "";
}

}  // namespace sluice::cli
