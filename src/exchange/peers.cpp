#include "exchange/peers.h"

#include <fmt/core.h>

#include <algorithm>

namespace sluice::exchange {

using fabric::Wait;

Peers::Peers(int rank, int ranks, uint64_t epoch, std::unique_ptr<fabric::Fabric> fabric)
    : rank_(rank), ranks_(ranks), epoch_(epoch), fabric_(std::move(fabric)) {}

bool Peers::ended() const { return fabric_ ? fabric_->ended() : ended_.load(std::memory_order_acquire); }

Status Peers::usable() const {
  if (!failure_.ok()) return failure_;
  if (ended()) return aborted(fmt::format("epoch {} has ended", epoch_));
  return {};
}

bool Peers::alive() const {
  return failure_.ok() && !ended() && !(fabric_ && fabric_->failed_peer().has_value());
}

void Peers::enter(int layer, Phase phase, uint64_t seq) {
  layer_ = layer;
  phase_ = phase;
  seq_ = seq;
}

std::string Peers::place() const {
  return fmt::format("{} of layer {} (exchange {} of epoch {})", phase_name(phase_), layer_, seq_, epoch_);
}

Status Peers::fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
  return failure_;
}

Status Peers::fail(Code code, int rank, int parts_missing, std::string reason) {
  if (!failure_.ok()) return failure_;
  blame_ = Blame{rank, layer_, phase_, parts_missing, reason};
  return fail(Status(code, fmt::format("rank {}, {}: {}", rank, place(), reason)));
}

Status Peers::fail_ended() { return fail(aborted(fmt::format("epoch {} ended during {}", epoch_, place()))); }

Status Peers::fail_peer() {
  const int rank = fabric_->failed_peer().value_or(-1);
  return fail(Code::unavailable, rank, 1, "connection lost");
}

// What the fabric refused on the way to `peer`.
Status Peers::fail_fabric(int peer, const Status& status) {
  if (status.code() == Code::aborted) return fail_ended();
  return fail(status.code(), peer, 1, status.message());
}

Status Peers::refuse(int source, const Status& why) { return fail(why.code(), source, 0, why.message()); }

template <class Ready>
Wait Peers::wait(Ready&& ready, Deadline deadline) {
  if (fabric_) return fabric_->wait(ready, deadline);
  bool done = false;
  const bool rang = bell_.wait([&] { return (done = ready()) || ended(); }, deadline);
  if (done) return Wait::ready;
  return rang ? Wait::ended : Wait::late;
}

Result<std::span<std::byte>> Peers::outbox(int peer, size_t bytes, Deadline deadline) {
  auto box = fabric_->outbox(peer, kind(), seq_, deadline);
  if (!box.ok()) return fail_fabric(peer, box.status());
  if (box->size() < bytes) {
    return fail(
        Code::internal, peer, 0,
        fmt::format("its slab holds {} bytes, this message has {}: the fabric was not opened with the "
                    "exchange's plan",
                    box->size(), bytes));
  }
  return box->first(bytes);
}

Status Peers::put(int peer, size_t bytes) {
  const Status sent = fabric_->put(peer, kind(), seq_, bytes);
  return sent.ok() ? sent : fail_fabric(peer, sent);
}

Result<std::span<const std::byte>> Peers::await(int source, Deadline deadline) {
  const Nanos began = now();
  switch (wait([&] { return fabric_->arrived(source, kind(), seq_); }, deadline)) {
    case Wait::ready:
      break;
    case Wait::late:
      return fail(Code::deadline_exceeded, source, 1,
                  fmt::format("late: nothing arrived within {} ms", (now() - began) / milliseconds(1)));
    case Wait::ended:
      return fail_ended();
    case Wait::peer_failed:
      return fail_peer();
  }
  auto message = fabric_->inbox(source, kind(), seq_);
  if (!message.ok()) return fail_fabric(source, message.status());
  return message;
}

Status Peers::wake(uint64_t step) {
  SLUICE_RETURN_IF_ERROR(usable());
  own_step_ = std::max(own_step_, step);
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    const Status sent = fabric_->wake(peer, step);
    if (!sent.ok()) return fail_fabric(peer, sent);
  }
  return {};
}

bool Peers::step_begun(uint64_t step, uint64_t next) const {
  if (own_step_ >= step) return true;
  for (int source = 0; source < ranks_; ++source) {
    if (source == rank_) continue;
    if (fabric_->woken(source) >= step || fabric_->arrived(source, fabric::Kind::dispatch, next)) return true;
  }
  return false;
}

Result<bool> Peers::wait_for_step(uint64_t step, uint64_t next, Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(usable());
  enter(-1, Phase::dispatch, next);
  bool begun = false;
  const auto ready = [&] {
    begun = step_begun(step, next);
    return begun || nudged_.load(std::memory_order_acquire);
  };
  switch (wait(ready, deadline)) {
    case Wait::ready:
      if (!begun) nudged_.store(false, std::memory_order_release);
      return begun;
    case Wait::late:
      return false;
    case Wait::ended:
      return fail_ended();
    case Wait::peer_failed:
      return fail_peer();
  }
  return false;
}

void Peers::nudge() {
  nudged_.store(true, std::memory_order_release);
  if (fabric_) {
    fabric_->nudge();
  } else {
    bell_.ring();
  }
}

void Peers::end_epoch() {
  if (fabric_) {
    fabric_->end_epoch();
  } else {
    ended_.store(true, std::memory_order_release);
    bell_.ring();
  }
}

}  // namespace sluice::exchange
