// Which rank holds which expert: a table, not a division, so any number of experts lies over any number of
// ranks.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"

namespace sluice::exchange {

class Placement {
 public:
  // Contiguous runs whose lengths differ by at most one. Every rank must hold at least one expert:
  // 1 <= ranks <= experts, or an error that says both.
  static Result<Placement> contiguous(int experts, int ranks);

  int experts() const { return static_cast<int>(owner_.size()); }
  int ranks() const { return static_cast<int>(held_.size()); }
  int owner(int expert) const { return owner_[static_cast<size_t>(expert)]; }
  // The expert's index among those of its owner, which are numbered in ascending expert order.
  int local_index(int expert) const { return local_index_[static_cast<size_t>(expert)]; }
  std::span<const int> experts_of(int rank) const { return held_[static_cast<size_t>(rank)]; }
  int most_experts_per_rank() const;

 private:
  std::vector<int> owner_;
  std::vector<int> local_index_;
  std::vector<std::vector<int>> held_;
};

}  // namespace sluice::exchange
