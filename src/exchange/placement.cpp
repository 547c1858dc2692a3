#include "exchange/placement.h"

#include <fmt/core.h>

#include <algorithm>

namespace sluice::exchange {

Result<Placement> Placement::contiguous(int experts, int ranks) {
  if (ranks < 1 || ranks > experts) {
    return invalid_argument(fmt::format(
        "cannot place {} experts on {} ranks: every rank must hold at least one, so 1 <= ranks <= experts",
        experts, ranks));
  }
  Placement placement;
  placement.held_.resize(static_cast<size_t>(ranks));
  const int share = experts / ranks;
  const int larger = experts % ranks;  // the first ranks hold one more
  for (int rank = 0; rank < ranks; ++rank) {
    auto& held = placement.held_[static_cast<size_t>(rank)];
    const int count = share + (rank < larger ? 1 : 0);
    for (int local = 0; local < count; ++local) {
      held.push_back(static_cast<int>(placement.owner_.size()));
      placement.owner_.push_back(rank);
      placement.local_index_.push_back(local);
    }
  }
  return placement;
}

int Placement::most_experts_per_rank() const {
  size_t most = 0;
  for (const auto& held : held_) most = std::max(most, held.size());
  return static_cast<int>(most);
}

}  // namespace sluice::exchange
