#include "engine/local_ranks.h"

#include <fmt/core.h>

#include <functional>
#include <thread>

namespace sluice::engine {
namespace {

// Calls `part` for each rank, each in a thread of its own, and returns the first rank's error.
Status on_each_rank(int ranks, const std::function<Status(int)>& part) {
  std::vector<Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = part(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < ranks; ++rank) {
    const Status& status = statuses[static_cast<size_t>(rank)];
    if (!status.ok()) return ranks > 1 ? status.with_context(fmt::format("rank {}", rank)) : status;
  }
  return {};
}

std::string describe(int rank, const exchange::Blame& blame, const Status& why) {
  if (blame.rank < 0) return fmt::format("rank {}: {}", rank, why.message());
  return fmt::format("rank {} waited for rank {} in layer {}, {}: {}", rank, blame.rank, blame.layer,
                     exchange::phase_name(blame.phase), blame.reason);
}

}  // namespace

Result<std::unique_ptr<LocalRanks>> LocalRanks::load(const RankSettings& settings) {
  if (settings.ranks < 1) {
    return invalid_argument(fmt::format("{} ranks; there must be at least one", settings.ranks));
  }
  std::unique_ptr<LocalRanks> all(new LocalRanks(settings.ranks));
  SLUICE_RETURN_IF_ERROR(on_each_rank(settings.ranks, [&](int index) -> Status {
    RankSettings mine = settings;
    mine.rank = index;
    mine.ranks_on_host = settings.ranks;
    SLUICE_ASSIGN_OR_RETURN(all->ranks_[static_cast<size_t>(index)], Rank::load(mine, all->callbacks(index)));
    return {};
  }));
  return all;
}

LocalRanks::~LocalRanks() {
  for (const auto& rank : ranks_) {
    if (!rank) return;  // not all were loaded, so none has an epoch
  }
  leave_epoch();
}

Callbacks LocalRanks::callbacks(int rank) {
  Callbacks callbacks;
  callbacks.on_ready = [this](uint64_t) {
    const std::lock_guard lock(mutex_);
    ++ready_;
    changed_.notify_all();
  };
  callbacks.on_broken = [this, rank](uint64_t, const exchange::Blame& blame, const Status& why) {
    broken(rank, blame, why);
  };
  return callbacks;
}

void LocalRanks::broken(int rank, const exchange::Blame& blame, const Status& why) {
  const Status status(why.code(), describe(rank, blame, why));
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.ok()) return;  // the first one says why; the others follow from it
    broken_ = status;
    changed_.notify_all();
  }
  if (on_broken_) on_broken_(status);
}

Status LocalRanks::enter_epoch(uint64_t epoch) {
  hub_ = std::make_unique<fabric::InProcessHub>(ranks());
  {
    const std::lock_guard lock(mutex_);
    ready_ = 0;
    broken_ = Status();
  }
  std::vector<std::unique_ptr<exchange::Exchange>> exchanges(ranks_.size());
  SLUICE_RETURN_IF_ERROR(on_each_rank(ranks(), [&](int index) -> Status {
    const auto bootstrap = hub_->join(index);
    SLUICE_ASSIGN_OR_RETURN(exchanges[static_cast<size_t>(index)],
                            rank(index).open_exchange(epoch, *bootstrap));
    return {};
  }));
  for (int index = 0; index < ranks(); ++index) {
    engine(index).enter_epoch(std::move(exchanges[static_cast<size_t>(index)]));
  }
  std::unique_lock lock(mutex_);
  // Bounded by the engines' step deadline: each rank becomes ready or reports its epoch broken.
  changed_.wait(lock, [this] { return ready_ == ranks() || !broken_.ok(); });
  return broken_;
}

// All at once: a rank that left before the others would look lost to them.
void LocalRanks::leave_epoch() {
  const Status left = on_each_rank(ranks(), [&](int index) -> Status {
    engine(index).leave_epoch();
    return {};
  });
  static_cast<void>(left.ok());
}

}  // namespace sluice::engine
