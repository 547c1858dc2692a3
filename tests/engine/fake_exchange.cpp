#include "fake_exchange.h"

#include <chrono>
#include <functional>

#include "toy_model.h"

namespace sluice::engine {

class FakeExchange final : public exchange::Exchange {
 public:
  FakeExchange(FakeHub& hub, int rank, uint64_t epoch)
      : hub_(hub),
        rank_(static_cast<size_t>(rank)),
        epoch_(epoch),
        shape_(toy_shape(static_cast<int>(hub.members_.size()), 0)) {}

  // One exchange at a time.
  Status dispatch_send(int, ConstMatrix, std::span<const int32_t>, std::span<const float>,
                       exchange::StepFlags flags, Deadline) override {
    const std::lock_guard lock(hub_.mutex_);
    self().flags[seq_ % 2] = flags;
    self().dispatched = seq_ + 1;
    hub_.changed_.notify_all();
    return {};
  }

  Result<exchange::Received> dispatch_receive(Deadline deadline) override {
    std::unique_lock lock(hub_.mutex_);
    SLUICE_RETURN_IF_ERROR(await_all(lock, &FakeHub::Member::dispatched, deadline));
    exchange::Received received;
    for (const FakeHub::Member& member : hub_.members_) {
      received.any.has_work |= member.flags[seq_ % 2].has_work;
      received.any.wants_epoch |= member.flags[seq_ % 2].wants_epoch;
    }
    return received;
  }

  Status combine_send(ConstMatrix, Deadline) override {
    const std::lock_guard lock(hub_.mutex_);
    if (self().break_at == seq_) {
      self().break_at = UINT64_MAX;
      hub_.blamed_ = static_cast<int>(rank_);
      hub_.changed_.notify_all();
      return unavailable("broken by the test");
    }
    self().combined = seq_ + 1;
    hub_.changed_.notify_all();
    return {};
  }

  Status combine_receive(Matrix, Deadline deadline) override {
    std::unique_lock lock(hub_.mutex_);
    SLUICE_RETURN_IF_ERROR(await_all(lock, &FakeHub::Member::combined, deadline));
    ++seq_;
    return {};
  }

  bool receivable(exchange::Phase) override { return true; }

  Status wake(uint64_t step) override {
    const std::lock_guard lock(hub_.mutex_);
    self().woken = std::max(self().woken, step);
    ++hub_.wakes_;
    hub_.changed_.notify_all();
    return {};
  }

  Result<bool> wait_for_step(uint64_t step, Deadline deadline) override {
    std::unique_lock lock(hub_.mutex_);
    bool woken = false;
    const bool done = wait(lock, deadline, [&] {
      for (const FakeHub::Member& member : hub_.members_) {
        woken |= member.epoch == epoch_ && (member.woken >= step || member.dispatched > seq_);
      }
      return woken || self().nudged;
    });
    SLUICE_RETURN_IF_ERROR(over());
    if (!done) ++hub_.timeouts_;
    if (!woken) self().nudged = false;
    return woken;
  }

  void nudge() override {
    const std::lock_guard lock(hub_.mutex_);
    self().nudged = true;
    hub_.changed_.notify_all();
  }
  void end_epoch() override {
    const std::lock_guard lock(hub_.mutex_);
    self().ended = true;
    hub_.changed_.notify_all();
  }

  const exchange::Shape& shape() const override { return shape_; }
  uint64_t epoch() const override { return epoch_; }
  std::optional<exchange::Blame> blame() const override {
    const std::lock_guard lock(hub_.mutex_);
    if (hub_.blamed_ < 0) return std::nullopt;
    return exchange::Blame{.rank = hub_.blamed_, .reason = "broken by the test"};
  }
  fabric::Report report() const override {
    fabric::Report report;
    report.provider = "fake";
    return report;
  }

 private:
  FakeHub::Member& self() const { return hub_.members_[rank_]; }

  Status over() const {
    if (self().ended) return aborted("the epoch ended");
    if (hub_.blamed_ >= 0) return unavailable("another rank broke the epoch");
    return {};
  }

  template <class Ready>
  bool wait(std::unique_lock<std::mutex>& lock, Deadline deadline, Ready ready) {
    const auto until = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.when()));
    return hub_.changed_.wait_until(lock, until, [&] { return !over().ok() || ready(); });
  }

  Status await_all(std::unique_lock<std::mutex>& lock, uint64_t FakeHub::Member::*progress,
                   Deadline deadline) {
    const auto all = [&] {
      for (const FakeHub::Member& member : hub_.members_) {
        if (member.epoch != epoch_ || member.*progress < seq_ + 1) return false;
      }
      return true;
    };
    const bool done = wait(lock, deadline, all);
    SLUICE_RETURN_IF_ERROR(over());
    return done ? Status() : Status(Code::deadline_exceeded, "a rank is late");
  }

  FakeHub& hub_;
  const size_t rank_;
  const uint64_t epoch_;
  const exchange::Shape shape_;
  uint64_t seq_ = 0;
};

FakeHub::FakeHub(int ranks) : members_(static_cast<size_t>(ranks)) {}

std::unique_ptr<exchange::Exchange> FakeHub::open(int rank, uint64_t epoch) {
  {
    const std::lock_guard lock(mutex_);
    Member& member = members_[static_cast<size_t>(rank)];
    const uint64_t break_at = member.break_at;
    member = Member();
    member.epoch = epoch;
    member.break_at = break_at;
    blamed_ = -1;
  }
  return std::make_unique<FakeExchange>(*this, rank, epoch);
}

void FakeHub::break_at(int rank, uint64_t seq) {
  const std::lock_guard lock(mutex_);
  members_[static_cast<size_t>(rank)].break_at = seq;
}

uint64_t FakeHub::completed(int rank) const {
  const std::lock_guard lock(mutex_);
  return members_[static_cast<size_t>(rank)].combined;
}

int FakeHub::wakes() const {
  const std::lock_guard lock(mutex_);
  return wakes_;
}

int FakeHub::timeouts() const {
  const std::lock_guard lock(mutex_);
  return timeouts_;
}

}  // namespace sluice::engine
