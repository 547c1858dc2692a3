#include "fabric/libfabric/sender.h"

#include <algorithm>
#include <cerrno>

namespace sluice::fabric::ofi {

namespace {

constexpr uint64_t kStripeAlignment = 128;

}  // namespace

Sender::Sender(Rail& rail, const Options& options, Staging& staging, void* descriptor,
               std::vector<Target> targets, std::function<void(int, int)> failed)
    : rail_(rail),
      staging_(staging),
      descriptor_(descriptor),
      rank_(static_cast<uint32_t>(options.rank)),
      generation_(static_cast<uint32_t>(options.epoch & 7)),
      stripe_bytes_(options.stripe_bytes),
      on_failed_(std::move(failed)),
      peers_(targets.size()) {
  for (size_t i = 0; i < targets.size(); ++i) peers_[i].target = targets[i];
}

void Sender::accept(const Order& order) {
  Peer& peer = peers_[static_cast<size_t>(order.peer)];
  if (peer.failed) return;
  if (order.op == Order::wake) {
    peer.wake_wanted = std::max(peer.wake_wanted, order.value);
  } else {
    uint64_t stripes = 1;
    uint64_t piece = order.bytes;
    if (stripe_bytes_ != 0 && order.bytes > stripe_bytes_) {
      stripes = std::min<uint64_t>(kMostStripes, (order.bytes + stripe_bytes_ - 1) / stripe_bytes_);
      piece = (order.bytes + stripes - 1) / stripes;
      piece = (piece + kStripeAlignment - 1) / kStripeAlignment * kStripeAlignment;
      stripes = (order.bytes + piece - 1) / piece;
    }
    const auto kind = static_cast<size_t>(order.kind);
    peer.puts.push_back({.kind = order.kind,
                         .half = order.half,
                         .offset = order.offset,
                         .bytes = order.bytes,
                         .part = peer.parts[kind][order.half]++ % 64,
                         .stripes = static_cast<uint32_t>(stripes),
                         .stripe_bytes = piece,
                         .next = 0});
    peer.outstanding[kind][order.half] += static_cast<uint32_t>(stripes);
  }
  enqueue(order.peer);
}

void Sender::acknowledge_wake(int peer, uint32_t number) {
  peers_[static_cast<size_t>(peer)].acknowledgement = number;
  enqueue(peer);
}

void Sender::wake_acknowledged(int index, uint32_t number) {
  Peer& peer = peers_[static_cast<size_t>(index)];
  if (!peer.wake_unread || number != peer.wake_number % 64) return;
  peer.wake_unread = false;
  ++peer.wake_number;
  enqueue(index);
}

bool Sender::has_work(const Peer& peer) const {
  if (peer.failed || peer.in_flight >= kCredits) return false;
  if (peer.acknowledgement) return true;
  if (peer.wake_wanted > peer.wake_sent && !peer.wake_unread && !peer.wake_in_flight) return true;
  if (peer.puts.empty()) return false;
  // Credits for the whole put, so that it never stands half sent behind its own stripes.
  const Put& put = peer.puts.front();
  return put.next != 0 || peer.in_flight + put.stripes <= kCredits;
}

void Sender::enqueue(int index) {
  Peer& peer = peers_[static_cast<size_t>(index)];
  if (peer.queued || !has_work(peer)) return;
  peer.queued = true;
  ready_.push_back(index);
}

bool Sender::post() {
  bool posted = false;
  for (size_t turns = ready_.size(); turns > 0; --turns) {
    const int index = ready_.front();
    ready_.pop_front();
    peers_[static_cast<size_t>(index)].queued = false;
    posted = post_peer(index) || posted;
    enqueue(index);
  }
  return posted;
}

bool Sender::post_peer(int index) {
  bool posted = false;
  while (has_work(peers_[static_cast<size_t>(index)])) {
    const ssize_t code = post_next(index);
    if (code == -EAGAIN) break;
    if (code < 0) {
      fail_peer(index, static_cast<int>(-code));
      break;
    }
    posted = true;
  }
  return posted;
}

ssize_t Sender::post_next(int index) {
  Peer& peer = peers_[static_cast<size_t>(index)];
  if (peer.acknowledgement) {
    const ssize_t code = post_control(index, 1, *peer.acknowledgement, 0);
    if (code == 0) peer.acknowledgement.reset();
    return code;
  }
  if (peer.wake_wanted > peer.wake_sent && !peer.wake_unread && !peer.wake_in_flight) {
    *staging_.mailbox(index) = {.step = peer.wake_wanted, .check = ~peer.wake_wanted};
    const ssize_t code = post_control(index, 0, peer.wake_number % 64, sizeof(Mailbox));
    if (code == 0) {
      peer.wake_sent = peer.wake_wanted;
      peer.wake_unread = peer.wake_in_flight = true;
    }
    return code;
  }
  Put& put = peer.puts.front();
  const ssize_t code = post_stripe(index, put);
  if (code == 0 && ++put.next == put.stripes) peer.puts.pop_front();
  return code;
}

ssize_t Sender::post_stripe(int index, Put& put) {
  const uint64_t begin = put.next * put.stripe_bytes;
  const Immediate immediate{.kind = static_cast<FragmentKind>(put.kind),
                            .generation = generation_,
                            .source = rank_,
                            .half = static_cast<uint32_t>(put.half),
                            .part = put.part,
                            .stripe = put.next,
                            .stripes = put.stripes};
  return write(index, immediate, put.offset + begin,
               staging_.layout().slab_in_block(put.kind, put.half) + begin,
               std::min(put.stripe_bytes, put.bytes - begin));
}

ssize_t Sender::post_control(int index, uint32_t half, uint32_t number, size_t bytes) {
  const Immediate immediate{.kind = FragmentKind::control,
                            .generation = generation_,
                            .source = rank_,
                            .half = half,
                            .part = number};
  return write(index, immediate, staging_.offset(staging_.mailbox(index)), 0, bytes);
}

ssize_t Sender::write(int index, const Immediate& immediate, uint64_t source, uint64_t target, size_t bytes) {
  const auto bits = encode_immediate(immediate);
  if (!bits) return -EINVAL;
  Peer& peer = peers_[static_cast<size_t>(index)];
  Operation* operation = take_operation();
  operation->peer = index;
  operation->kind = immediate.kind;
  operation->half = static_cast<int>(immediate.half);
  const ssize_t code = rail_.write({.source = staging_.memory().data() + source,
                                    .length = bytes,
                                    .descriptor = descriptor_,
                                    .peer = peer.target.peer,
                                    .address = peer.target.base + target,
                                    .key = peer.target.key,
                                    .immediate = *bits,
                                    .context = operation});
  if (code != 0) {
    free_.push_back(operation);
    return code;
  }
  ++peer.in_flight;
  ++in_flight_;
  return 0;
}

Sender::Operation* Sender::take_operation() {
  if (free_.empty()) return &operations_.emplace_back();
  Operation* operation = free_.back();
  free_.pop_back();
  return operation;
}

void Sender::give_back(Operation* operation) {
  --peers_[static_cast<size_t>(operation->peer)].in_flight;
  --in_flight_;
  free_.push_back(operation);
}

void Sender::completed(void* context) {
  auto* operation = static_cast<Operation*>(context);
  const int index = operation->peer;
  Peer& peer = peers_[static_cast<size_t>(index)];
  if (operation->kind == FragmentKind::control) {
    if (operation->half == 0) peer.wake_in_flight = false;
  } else {
    const auto kind = static_cast<size_t>(operation->kind);
    if (--peer.outstanding[kind][operation->half] == 0) {
      // seq_cst: either the caller that is about to wait sees this, or the proxy sees that it waits.
      staging_.slots(index).busy[kind][operation->half].store(0, std::memory_order_seq_cst);
      released_ = true;
    }
  }
  give_back(operation);
  enqueue(index);
}

void Sender::failed(void* context, int error) {
  auto* operation = static_cast<Operation*>(context);
  const int index = operation->peer;
  give_back(operation);
  fail_peer(index, error);
}

void Sender::fail_peer(int index, int error) {
  Peer& peer = peers_[static_cast<size_t>(index)];
  if (std::exchange(peer.failed, true)) return;
  peer.puts.clear();
  peer.acknowledgement.reset();
  staging_.slots(index).error.store(error, std::memory_order_release);
  on_failed_(index, error);
}

}  // namespace sluice::fabric::ofi
