#include "bench/exchange_contestant.h"

#include <fmt/core.h>

#include <algorithm>

#include "exchange/rounds.h"

namespace sluice::bench {
namespace {

constexpr uint64_t kEpoch = 1;

// The part [first, first + count) of a rank's tokens.
Tokens slice(const Tokens& tokens, int first, int count, int top_k) {
  Tokens part;
  part.count = count;
  part.hidden = tokens.hidden;
  part.dtype = tokens.dtype;
  const auto row =
      static_cast<std::ptrdiff_t>(tokens.hidden) * static_cast<std::ptrdiff_t>(dtype_bytes(tokens.dtype));
  part.x.assign(tokens.x.begin() + first * row, tokens.x.begin() + (first + count) * row);
  const auto choices = [&](const auto& values) {
    using Values = std::decay_t<decltype(values)>;
    return Values(values.begin() + first * top_k, values.begin() + (first + count) * top_k);
  };
  part.experts = choices(tokens.experts);
  part.weights = choices(tokens.weights);
  return part;
}

}  // namespace

Result<std::unique_ptr<ExchangeContestant>> ExchangeContestant::open(const Settings& settings, int rank,
                                                                     fabric::Bootstrap& bootstrap) {
  SLUICE_ASSIGN_OR_RETURN(auto placement,
                          exchange::Placement::contiguous(settings.shape.experts, settings.shape.ranks));
  SLUICE_ASSIGN_OR_RETURN(const auto plan, exchange::plan(settings.shape, placement));
  std::unique_ptr<fabric::Fabric> fabric;
  if (settings.shape.ranks > 1) {
    fabric::Options options;
    options.provider = settings.fabric;
    options.rank = rank;
    options.ranks = settings.shape.ranks;
    options.epoch = kEpoch;
    options.slab_bytes = {plan.dispatch_slab_bytes, plan.combine_slab_bytes};
    options.connect_timeout = settings.connect_timeout;
    options.proof_bytes = settings.proof_bytes;
    options.address = settings.address;
    SLUICE_ASSIGN_OR_RETURN(fabric, fabric::Fabric::open(options, bootstrap));
  }
  SLUICE_ASSIGN_OR_RETURN(
      auto exchange, exchange::Exchange::open(settings.shape, placement, rank, kEpoch, std::move(fabric)));
  return std::unique_ptr<ExchangeContestant>(
      new ExchangeContestant(settings, rank, std::move(placement), std::move(exchange)));
}

ExchangeContestant::ExchangeContestant(const Settings& settings, int rank, exchange::Placement placement,
                                       std::unique_ptr<exchange::Exchange> exchange)
    : settings_(settings),
      rank_(rank),
      placement_(std::move(placement)),
      experts_(placement_.experts_of(rank).begin(), placement_.experts_of(rank).end()),
      exchange_(std::move(exchange)),
      tokens_(make_tokens(settings.shape, rank, settings.tokens, settings.load, settings.seed)),
      out_(static_cast<size_t>(settings.tokens) * static_cast<size_t>(settings.shape.hidden)) {}

// An empty exchange: every rank hears from every rank.
Status ExchangeContestant::barrier() {
  const exchange::Shape& shape = settings_.shape;
  const ConstMatrix none(nullptr, DType::float32, 0, shape.hidden, shape.hidden);
  SLUICE_ASSIGN_OR_RETURN(const auto received, exchange_->dispatch(0, none, {}, {}, {}, deadline()));
  (void)received;
  return exchange_->combine(none, {nullptr, DType::float32, 0, shape.hidden, shape.hidden}, deadline());
}

Status ExchangeContestant::check(const exchange::Received& received, int first, int count) {
  const exchange::Shape& shape = exchange_->shape();
  std::vector<Tokens> parts;
  for (const Tokens& tokens : all_) parts.push_back(slice(tokens, first, count, shape.top_k));
  SLUICE_RETURN_IF_ERROR(check_received(shape, placement_, rank_, parts, received));
  pair_rows_.resize(std::max(pair_rows_.size(), static_cast<size_t>(received.pairs() * shape.hidden)));
  apply_experts(received, shape.wire, shape.hidden, experts_, pair_rows_.data());
  return {};
}

Status ExchangeContestant::layer(bool verifying, Sample& sample) {
  const exchange::Shape& shape = exchange_->shape();
  int first = 0;  // of the round that arrives next
  Nanos mark = now();
  const auto apply = [&](const exchange::Received& received) -> Result<ConstMatrix> {
    sample.dispatch += now() - mark;
    const int count = std::clamp(settings_.tokens - first, 0, shape.max_tokens);
    if (verifying) SLUICE_RETURN_IF_ERROR(check(received, first, count));
    first += count;
    mark = now();
    return ConstMatrix(pair_rows_.data(), DType::float32, received.pairs(), shape.hidden, shape.hidden);
  };
  const Matrix out{out_.data(), DType::float32, settings_.tokens, shape.hidden, shape.hidden};
  SLUICE_ASSIGN_OR_RETURN(const auto any, exchange::exchange_layer(*exchange_,
                                                                   {.layer = 0,
                                                                    .x = tokens_.matrix(),
                                                                    .experts = tokens_.experts,
                                                                    .weights = tokens_.weights,
                                                                    .flags = {}},
                                                                   apply, out, deadline()));
  (void)any;
  sample.combine += now() - mark;
  return {};
}

Status ExchangeContestant::verify() {
  for (int rank = 0; rank < settings_.shape.ranks; ++rank) {
    all_.push_back(make_tokens(settings_.shape, rank, settings_.tokens, settings_.load, settings_.seed));
  }
  std::fill(out_.begin(), out_.end(), 0.0F);
  Sample sample;
  SLUICE_RETURN_IF_ERROR(layer(true, sample));
  all_.clear();
  return check_combined(exchange_->shape(), placement_, tokens_, out_.data());
}

Result<Sample> ExchangeContestant::run() {
  SLUICE_RETURN_IF_ERROR(barrier());
  Sample sample;
  sample.begin = now();
  SLUICE_RETURN_IF_ERROR(layer(false, sample));
  sample.end = now();
  return sample;
}

}  // namespace sluice::bench
