// The exchange's side of the fabric: outboxes, waits and wakes for one rank, and the record of who broke the
// epoch. A rank alone has no fabric and waits on a bell of its own.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>

#include "base/doorbell.h"
#include "exchange/exchange.h"

namespace sluice::exchange {

class Peers {
 public:
  Peers(int rank, int ranks, uint64_t epoch, std::unique_ptr<fabric::Fabric> fabric);

  // An error once the epoch has ended or anything here has failed.
  Status usable() const;
  // Whether a wait would still wait: the epoch has not ended and nothing is known to have failed.
  bool alive() const;
  // Where the caller is, for blame and for slabs. seq is the exchange's ordinal.
  void enter(int layer, Phase phase, uint64_t seq);

  Result<std::span<std::byte>> outbox(int peer, size_t bytes, Deadline deadline);
  Status put(int peer, size_t bytes);
  bool arrived(int source, Phase phase, uint64_t seq) const {
    return fabric_->arrived(source, kind_of(phase), seq);
  }
  // Waits for `source`'s message of this phase and exchange.
  Result<std::span<const std::byte>> await(int source, Deadline deadline);
  // Records that `source` sent what `why` says, and ends the use of the exchange.
  Status refuse(int source, const Status& why);

  Status wake(uint64_t step);
  // `next` is the seq of the next exchange: a dispatch of it is a wake too.
  Result<bool> wait_for_step(uint64_t step, uint64_t next, Deadline deadline);
  // From any thread.
  void nudge();
  void end_epoch();
  bool ended() const;

  const std::optional<Blame>& blame() const { return blame_; }
  fabric::Report report() const { return fabric_ ? fabric_->report() : fabric::Report{}; }

 private:
  static fabric::Kind kind_of(Phase phase) {
    return phase == Phase::dispatch ? fabric::Kind::dispatch : fabric::Kind::combine;
  }
  fabric::Kind kind() const { return kind_of(phase_); }
  std::string place() const;
  bool step_begun(uint64_t step, uint64_t next) const;
  template <class Ready>
  fabric::Wait wait(Ready&& ready, Deadline deadline);
  // These keep the first failure and return it.
  Status fail(Status status);
  Status fail(Code code, int rank, int parts_missing, std::string reason);
  Status fail_fabric(int peer, const Status& status);
  Status fail_ended();
  Status fail_peer();

  int rank_;
  int ranks_;
  uint64_t epoch_;
  std::unique_ptr<fabric::Fabric> fabric_;
  int layer_ = -1;
  Phase phase_ = Phase::dispatch;
  uint64_t seq_ = 0;
  uint64_t own_step_ = 0;
  Status failure_;
  std::optional<Blame> blame_;
  std::atomic<bool> nudged_{false};
  // Of a rank alone.
  std::atomic<bool> ended_{false};
  Doorbell bell_;
};

}  // namespace sluice::exchange
