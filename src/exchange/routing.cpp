#include "exchange/routing.h"

#include <fmt/core.h>

#include <algorithm>

namespace sluice::exchange {
namespace {

template <class T>
std::span<const T> slice(const std::vector<T>& all, const std::vector<int32_t>& offsets, int rank) {
  const auto begin = static_cast<size_t>(offsets[static_cast<size_t>(rank)]);
  const auto end = static_cast<size_t>(offsets[static_cast<size_t>(rank) + 1]);
  return std::span(all).subspan(begin, end - begin);
}

}  // namespace

Routing::Routing(const Shape& shape, const Placement& placement)
    : placement_(placement),
      ranks_(shape.ranks),
      top_k_(shape.top_k),
      row_offsets_(static_cast<size_t>(ranks_) + 1),
      pair_offsets_(static_cast<size_t>(ranks_) + 1),
      last_token_(static_cast<size_t>(ranks_)) {}

std::span<const int32_t> Routing::rows(int rank) const { return slice(rows_, row_offsets_, rank); }
std::span<const PairEntry> Routing::pairs(int rank) const { return slice(pairs_, pair_offsets_, rank); }
std::span<const int32_t> Routing::choices(int rank) const { return slice(choices_, pair_offsets_, rank); }

Status Routing::check(std::span<const int32_t> experts, int tokens) const {
  const auto top_k = static_cast<size_t>(top_k_);
  for (size_t choice = 0; choice < static_cast<size_t>(tokens) * top_k; ++choice) {
    const int32_t expert = experts[choice];
    if (expert < 0 || expert >= placement_.experts()) {
      return invalid_argument(fmt::format("token {} chose expert {}; there are experts 0 to {}",
                                          choice / top_k, expert, placement_.experts() - 1));
    }
    for (size_t earlier = choice - choice % top_k; earlier < choice; ++earlier) {
      if (experts[earlier] != expert) continue;
      return invalid_argument(fmt::format("token {} chose expert {} twice; its {} experts must differ",
                                          choice / top_k, expert, top_k));
    }
  }
  return {};
}

Status Routing::build(std::span<const int32_t> experts, int tokens) {
  SLUICE_RETURN_IF_ERROR(check(experts, tokens));
  tokens_ = tokens;
  const auto choices = static_cast<size_t>(tokens) * static_cast<size_t>(top_k_);
  slots_.resize(choices);
  for (size_t choice = 0; choice < choices; ++choice) slots_[choice].rank = placement_.owner(experts[choice]);
  count();

  rows_.resize(static_cast<size_t>(row_offsets_.back()));
  pairs_.resize(choices);
  choices_.resize(choices);
  for (size_t choice = 0; choice < choices; ++choice) {
    const Slot& slot = slots_[choice];
    const auto rank = static_cast<size_t>(slot.rank);
    const auto pair = static_cast<size_t>(pair_offsets_[rank] + slot.pair);
    rows_[static_cast<size_t>(row_offsets_[rank] + slot.row)] =
        static_cast<int32_t>(choice / static_cast<size_t>(top_k_));
    pairs_[pair] = {static_cast<uint32_t>(slot.row),
                    static_cast<uint32_t>(placement_.local_index(experts[choice]))};
    choices_[pair] = static_cast<int32_t>(choice);
  }
  return {};
}

// Numbers rows and pairs within each rank, in token order, then turns the totals into offsets.
void Routing::count() {
  std::fill(row_offsets_.begin(), row_offsets_.end(), 0);
  std::fill(pair_offsets_.begin(), pair_offsets_.end(), 0);
  std::fill(last_token_.begin(), last_token_.end(), -1);
  for (size_t choice = 0; choice < slots_.size(); ++choice) {
    Slot& slot = slots_[choice];
    const auto rank = static_cast<size_t>(slot.rank);
    const auto token = static_cast<int32_t>(choice / static_cast<size_t>(top_k_));
    if (last_token_[rank] != token) ++row_offsets_[rank + 1];
    last_token_[rank] = token;
    slot.row = row_offsets_[rank + 1] - 1;
    slot.pair = pair_offsets_[rank + 1]++;
  }
  for (size_t rank = 0; rank < static_cast<size_t>(ranks_); ++rank) {
    row_offsets_[rank + 1] += row_offsets_[rank];
    pair_offsets_[rank + 1] += pair_offsets_[rank];
  }
}

}  // namespace sluice::exchange
