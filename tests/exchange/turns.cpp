#include "turns.h"

#include <fmt/core.h>

#include "cluster.h"

namespace sluice::exchange::test {

namespace {

// For what may have to wait for the network to let go of older bytes. Short: on a network that one thread
// simulates, nothing comes while it waits.
Deadline soon() { return Deadline::after(milliseconds(20)); }
// Already expired: what receivable() promised must be there.
Deadline at_once() { return Deadline::after(0); }

ConstMatrix rows_of(const std::vector<float>& values, int64_t rows, int hidden) {
  return {values.data(), DType::float32, rows, hidden, hidden};
}

}  // namespace

Turns::Turns(std::unique_ptr<Exchange> exchange, const Placement& placement, int rank, int exchanges,
             uint64_t seed)
    : exchange_(std::move(exchange)),
      placement_(placement),
      rank_(rank),
      exchanges_(exchanges),
      random_(seed) {}

bool Turns::turn() {
  if (!status_.ok()) return false;
  std::vector<Status (Turns::*)()> steps;
  if (sent_ < exchanges_ && sent_ < collected_ + 2) steps.push_back(&Turns::send);
  if (received_ < sent_ && exchange_->receivable(Phase::dispatch)) steps.push_back(&Turns::receive);
  if (answered_ < received_) steps.push_back(&Turns::answer);
  if (collected_ < answered_ && exchange_->receivable(Phase::combine)) steps.push_back(&Turns::collect);
  if (steps.empty()) return false;
  status_ = (this->*steps[random_() % steps.size()])();
  most_under_way_ = std::max(most_under_way_, sent_ - collected_);
  return status_.ok();
}

Status Turns::send() {
  const Shape& shape = exchange_->shape();
  // Every fourth batch is as large as it may be, every fourth empty.
  int count = static_cast<int>(random_() % static_cast<uint64_t>(shape.max_tokens + 1));
  if (random_() % 4 == 0) count = shape.max_tokens;
  if (random_() % 4 == 0) count = 0;
  batches_.push_back(draw_tokens(random_, shape, count, static_cast<Load>(random_() % 3)));
  const Tokens& tokens = batches_.back();
  return exchange_->dispatch_send(sent_++, rows_of(tokens.x, tokens.count, shape.hidden), tokens.experts,
                                  tokens.weights, {.has_work = rank_ == 0}, soon());
}

Status Turns::receive() {
  SLUICE_ASSIGN_OR_RETURN(const Received received, exchange_->dispatch_receive(at_once()));
  if (!received.any.has_work) return internal_error("rank 0 has work, and this rank was not told");
  arrived_.push_back(received);
  ++received_;
  return {};
}

Status Turns::answer() {
  const Shape& shape = exchange_->shape();
  const Received received = arrived_.front();
  arrived_.pop_front();
  results_.push_back(apply_experts(received, shape, placement_.experts_of(rank_)));
  ++answered_;
  return exchange_->combine_send(rows_of(results_.back(), received.pairs(), shape.hidden), soon());
}

Status Turns::collect() {
  const Shape& shape = exchange_->shape();
  const Tokens tokens = std::move(batches_.front());
  batches_.pop_front();
  std::vector<float> out(tokens.x.size());
  SLUICE_RETURN_IF_ERROR(exchange_->combine_receive(
      Matrix{out.data(), DType::float32, tokens.count, shape.hidden, shape.hidden}, at_once()));
  results_.pop_front();
  ++collected_;
  if (bits_of(out) == bits_of(expected_result(shape, placement_, tokens))) return {};
  return internal_error(
      fmt::format("rank {}, exchange {}: wrong result for {} tokens", rank_, collected_ - 1, tokens.count));
}

}  // namespace sluice::exchange::test
