#include "bench/raw_contestants.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "bench/streams.h"

namespace sluice::bench {
namespace {

using fabric::Kind;

constexpr uint64_t kEpoch = 2;
constexpr size_t kSlack = 4096;

// The most that any rank sends to any other in a round: equal on all ranks, as slabs must be.
std::array<size_t, fabric::kKinds> slab_bytes(const Settings& settings) {
  const exchange::Shape& shape = settings.shape;
  const auto tokens = static_cast<size_t>(shape.max_tokens);
  const auto hidden = static_cast<size_t>(shape.hidden);
  const auto pairs = tokens * static_cast<size_t>(shape.top_k);
  const size_t dispatch = tokens * hidden * dtype_bytes(shape.wire) + pairs * 12;
  const size_t combine =
      shape.exact ? pairs * hidden * sizeof(float) : tokens * hidden * dtype_bytes(shape.wire);
  return {dispatch + kSlack, combine + kSlack};
}

template <class Act>
Status timed(Nanos& total, Act&& act) {
  const Nanos begin = now();
  const Status status = act();
  total += now() - begin;
  return status;
}

}  // namespace

Result<std::unique_ptr<RawFabric>> RawFabric::open(const Settings& settings, int rank,
                                                   fabric::Bootstrap& bootstrap) {
  fabric::Options options;
  options.provider = settings.fabric;
  options.rank = rank;
  options.ranks = settings.shape.ranks;
  options.epoch = kEpoch;
  options.slab_bytes = slab_bytes(settings);
  options.connect_timeout = settings.connect_timeout;
  options.proof_bytes = settings.proof_bytes;
  options.address = settings.address;
  SLUICE_ASSIGN_OR_RETURN(auto fabric, fabric::Fabric::open(options, bootstrap));
  return std::unique_ptr<RawFabric>(new RawFabric(settings, std::move(fabric)));
}

Result<std::span<std::byte>> RawFabric::outbox(int peer, Kind kind) {
  return fabric_->outbox(peer, kind, seq_, deadline());
}

Status RawFabric::put(int peer, Kind kind, size_t bytes) { return fabric_->put(peer, kind, seq_, bytes); }

Result<std::span<const std::byte>> RawFabric::inbox(int source, Kind kind) {
  return fabric_->inbox(source, kind, seq_);
}

Status RawFabric::await_all(Kind kind) {
  int next = 0;
  const auto waited = fabric_->wait(
      [&] {
        while (next < ranks() && (next == rank() || fabric_->arrived(next, kind, seq_))) ++next;
        return next == ranks();
      },
      deadline());
  if (waited == fabric::Wait::ready) return {};
  return {Code::deadline_exceeded, fmt::format("a plain put of rank {} did not arrive", next)};
}

Status RawFabric::barrier() {
  for (const Kind kind : {Kind::dispatch, Kind::combine}) {
    for (int i = 1; i < ranks(); ++i) {
      SLUICE_RETURN_IF_ERROR(outbox(peer(i), kind).status());
      SLUICE_RETURN_IF_ERROR(put(peer(i), kind, 0));
    }
    SLUICE_RETURN_IF_ERROR(await_all(kind));
  }
  next();
  return {};
}

RawContestant::RawContestant(RawFabric& fabric, const std::vector<RoundTraffic>& traffic)
    : fabric_(fabric), traffic_(traffic) {
  size_t most = 0;
  for (const RoundTraffic& round : traffic) {
    for (const size_t bytes : round.dispatch_bytes) most = std::max(most, bytes);
    for (const size_t bytes : round.combine_bytes) most = std::max(most, bytes);
  }
  if (fabric.local()) source_.assign(most, std::byte{1});
}

Status RawContestant::verify() { return run().status(); }

Status RawContestant::send(Kind kind, const std::vector<size_t>& bytes) {
  for (int i = 1; i < fabric_.ranks(); ++i) {
    const int peer = fabric_.peer(i);
    const size_t count = bytes[static_cast<size_t>(peer)];
    SLUICE_ASSIGN_OR_RETURN(const auto outbox, fabric_.outbox(peer, kind));
    if (fabric_.local() && count > 0) std::memcpy(outbox.data(), source_.data(), count);
    SLUICE_RETURN_IF_ERROR(fabric_.put(peer, kind, count));
  }
  return fabric_.await_all(kind);
}

Result<Sample> RawContestant::run() {
  SLUICE_RETURN_IF_ERROR(fabric_.barrier());
  Sample sample;
  sample.begin = now();
  for (const RoundTraffic& round : traffic_) {
    SLUICE_RETURN_IF_ERROR(
        timed(sample.dispatch, [&] { return send(Kind::dispatch, round.dispatch_bytes); }));
    SLUICE_RETURN_IF_ERROR(timed(sample.combine, [&] { return send(Kind::combine, round.combine_bytes); }));
    fabric_.next();
  }
  sample.end = now();
  return sample;
}

CopiesContestant::CopiesContestant(const Settings& settings, RawFabric& fabric,
                                   const std::vector<RoundTraffic>& traffic)
    : settings_(settings),
      fabric_(fabric),
      traffic_(traffic),
      tokens_(make_tokens(settings.shape, fabric.rank(), settings.tokens, settings.load, settings.seed)),
      out_(static_cast<size_t>(settings.tokens) * static_cast<size_t>(settings.shape.hidden)) {
  const auto ranks = static_cast<size_t>(fabric.ranks());
  packed_.resize(ranks);
  returned_.resize(ranks);
  const auto hidden = static_cast<size_t>(settings.shape.hidden);
  for (const RoundTraffic& round : traffic) {
    pair_rows_.resize(std::max(pair_rows_.size(), static_cast<size_t>(round.pairs) * hidden), 1.0F);
    for (size_t peer = 0; peer < ranks; ++peer) {
      const size_t pairs = round.sent[peer].size() * static_cast<size_t>(settings.shape.top_k);
      const size_t rows = settings.shape.exact ? pairs : round.sent[peer].size();
      const size_t answered = round.received[peer].size() * static_cast<size_t>(settings.shape.top_k);
      const size_t staged =
          std::max(round.sent[peer].size(), settings.shape.exact ? answered : round.received[peer].size());
      packed_[peer].resize(std::max(packed_[peer].size(), staged * hidden * sizeof(float)));
      returned_[peer].resize(std::max(returned_[peer].size(), rows * answer_bytes()));
    }
  }
  list_answers();
}

size_t CopiesContestant::answer_bytes() const {
  return static_cast<size_t>(settings_.shape.hidden) * dtype_bytes(answer_type());
}

void CopiesContestant::list_answers() {
  const exchange::Shape& shape = settings_.shape;
  const auto placement = exchange::Placement::contiguous(shape.experts, shape.ranks);
  for (const RoundTraffic& round : traffic_) {
    std::vector<std::vector<Answer>> answers(static_cast<size_t>(round.tokens));
    std::vector<int32_t> rows(static_cast<size_t>(shape.ranks), -1);
    for (int token = 0; token < round.tokens; ++token) {
      auto& list = answers[static_cast<size_t>(token)];
      for (int k = 0; k < shape.top_k; ++k) {
        const auto choice = static_cast<size_t>((round.first_token + token) * shape.top_k + k);
        const int32_t owner = placement->owner(tokens_.experts[choice]);
        const bool known =
            std::any_of(list.begin(), list.end(), [&](const Answer& answer) { return answer.peer == owner; });
        if (known && !shape.exact) continue;
        list.push_back({owner, ++rows[static_cast<size_t>(owner)]});
      }
    }
    answers_.push_back(std::move(answers));
  }
}

Status CopiesContestant::verify() { return run().status(); }

void CopiesContestant::pack(const RoundTraffic& round, int peer, std::byte* to) const {
  const ConstMatrix x = tokens_.matrix();
  const size_t bytes = static_cast<size_t>(x.cols) * dtype_bytes(x.dtype);
  for (const int32_t token : round.sent[static_cast<size_t>(peer)]) {
    std::memcpy(to, x.row_bytes(token), bytes);
    to += bytes;
  }
}

Status CopiesContestant::dispatch(const RoundTraffic& round) {
  // A rank's rows to itself need not be copied.
  for (int i = 1; i < fabric_.ranks(); ++i) {
    const int peer = fabric_.peer(i);
    if (!fabric_.local()) {
      pack(round, peer, packed_[static_cast<size_t>(peer)].data());
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(const auto outbox, fabric_.outbox(peer, Kind::dispatch));
    pack(round, peer, outbox.data());
    SLUICE_RETURN_IF_ERROR(
        fabric_.put(peer, Kind::dispatch, round.dispatch_bytes[static_cast<size_t>(peer)]));
  }
  return fabric_.local() ? fabric_.await_all(Kind::dispatch) : Status();
}

void CopiesContestant::reduce_for(const RoundTraffic& round, int source, std::byte* to) const {
  const int64_t hidden = settings_.shape.hidden;
  std::array<const void*, 64> rows{};
  for (const RowPairs& pairs : round.received[static_cast<size_t>(source)]) {
    size_t count = 0;
    for (const int32_t pair : pairs) {
      const float* const row = pair_rows_.data() + static_cast<int64_t>(pair) * hidden;
      if (settings_.shape.exact) {
        std::memcpy(to, row, answer_bytes());
        to += answer_bytes();
      } else {
        rows[count++] = row;
      }
    }
    if (settings_.shape.exact) continue;
    add_rows(std::span(rows).first(count), DType::float32, to, answer_type(), hidden);
    to += answer_bytes();
  }
}

Status CopiesContestant::reduce(const RoundTraffic& round) {
  for (int i = 0; i < fabric_.ranks(); ++i) {
    const int peer = fabric_.peer(i);
    if (i == 0) {
      reduce_for(round, peer, returned_[static_cast<size_t>(peer)].data());
    } else if (!fabric_.local()) {
      reduce_for(round, peer, packed_[static_cast<size_t>(peer)].data());
    } else {
      SLUICE_ASSIGN_OR_RETURN(const auto outbox, fabric_.outbox(peer, Kind::combine));
      reduce_for(round, peer, outbox.data());
      SLUICE_RETURN_IF_ERROR(
          fabric_.put(peer, Kind::combine, round.combine_bytes[static_cast<size_t>(peer)]));
    }
  }
  return fabric_.local() ? fabric_.await_all(Kind::combine) : Status();
}

Status CopiesContestant::sum(const RoundTraffic& round, const std::vector<std::vector<Answer>>& answers) {
  std::vector<const std::byte*> from(static_cast<size_t>(fabric_.ranks()));
  for (int peer = 0; peer < fabric_.ranks(); ++peer) {
    from[static_cast<size_t>(peer)] = returned_[static_cast<size_t>(peer)].data();
    if (!fabric_.local() || peer == fabric_.rank()) continue;
    SLUICE_ASSIGN_OR_RETURN(const auto inbox, fabric_.inbox(peer, Kind::combine));
    from[static_cast<size_t>(peer)] = inbox.data();
  }
  const int64_t hidden = settings_.shape.hidden;
  std::array<const void*, 64> rows{};
  for (int token = 0; token < round.tokens; ++token) {
    size_t count = 0;
    for (const Answer& answer : answers[static_cast<size_t>(token)]) {
      rows[count++] =
          from[static_cast<size_t>(answer.peer)] + static_cast<size_t>(answer.row) * answer_bytes();
    }
    add_rows(std::span(rows).first(count), answer_type(), out_.data() + (round.first_token + token) * hidden,
             DType::float32, hidden);
  }
  return {};
}

Result<Sample> CopiesContestant::run() {
  SLUICE_RETURN_IF_ERROR(fabric_.barrier());
  Sample sample;
  sample.begin = now();
  for (size_t i = 0; i < traffic_.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(timed(sample.dispatch, [&] { return dispatch(traffic_[i]); }));
    SLUICE_RETURN_IF_ERROR(timed(sample.combine, [&] { return reduce(traffic_[i]); }));
    SLUICE_RETURN_IF_ERROR(timed(sample.combine, [&] { return sum(traffic_[i], answers_[i]); }));
    if (fabric_.local()) fabric_.next();
  }
  sample.end = now();
  return sample;
}

}  // namespace sluice::bench
