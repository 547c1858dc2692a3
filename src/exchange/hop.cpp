#include "exchange/hop.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "exchange/message.h"
#include "exchange/rows.h"

namespace sluice::exchange {

AlignedBytes allocate_aligned(size_t bytes) {
  return AlignedBytes(
      static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kRowAlignment}, std::nothrow)));
}

Result<std::unique_ptr<Hop>> Hop::open(const Shape& shape, const Placement& placement, int rank,
                                       uint64_t epoch, std::unique_ptr<fabric::Fabric> fabric) {
  SLUICE_ASSIGN_OR_RETURN(const Plan needs, plan(shape, placement));
  std::array<AlignedBytes, fabric::kHalves> own_rows;
  for (AlignedBytes& rows : own_rows) rows = allocate_aligned(needs.own_bytes / own_rows.size());
  AlignedBytes own_sum = allocate_aligned(returned_stride(shape));
  if (!own_rows.front() || !own_rows.back() || !own_sum) {
    return Status(Code::resource_exhausted,
                  fmt::format("exchange: no memory for {} ({})", needs.own_bytes, needs.formula));
  }
  return std::unique_ptr<Hop>(
      new Hop(shape, placement, rank, epoch, std::move(fabric), std::move(own_rows), std::move(own_sum)));
}

Hop::Passage::Passage(const Shape& shape, const Placement& placement, int rank, AlignedBytes own)
    : routing(shape, placement),
      own_rows(std::move(own)),
      inbound(shape, rank, static_cast<int>(placement.experts_of(rank).size())),
      answers(static_cast<size_t>(shape.ranks)) {}

Hop::Hop(const Shape& shape, const Placement& placement, int rank, uint64_t epoch,
         std::unique_ptr<fabric::Fabric> fabric, std::array<AlignedBytes, fabric::kHalves> own_rows,
         AlignedBytes own_sum)
    : shape_(shape),
      placement_(placement),
      rank_(rank),
      stride_(row_stride(shape_)),
      returned_stride_(returned_stride(shape_)),
      peers_(rank, shape.ranks, epoch, std::move(fabric)),
      passages_{Passage(shape_, placement_, rank, std::move(own_rows[0])),
                Passage(shape_, placement_, rank, std::move(own_rows[1]))},
      own_sum_(std::move(own_sum)) {}

bool Hop::all_arrived(Phase phase) {
  const bool dispatch = phase == Phase::dispatch;
  const uint64_t seq = dispatch ? received_ : finished_;
  Seen& seen = seen_[dispatch ? 0 : 1];
  if (seen.ranks == 0 || seen.seq != seq) seen = {seq, 0};
  for (; seen.ranks < shape_.ranks; ++seen.ranks) {
    if (seen.ranks != rank_ && !peers_.arrived(seen.ranks, phase, seq)) return false;
  }
  return true;
}

Status Hop::send_rows(int layer, const RowSource& rows, std::span<const int32_t> experts,
                      std::span<const float> weights, StepFlags flags, Deadline deadline) {
  Passage& passage = half(sent_);
  const int tokens = static_cast<int>(experts.size() / static_cast<size_t>(shape_.top_k));
  SLUICE_RETURN_IF_ERROR(passage.routing.build(experts, tokens));
  passage.layer = layer;
  passage.flags = flags;
  passage.weights.assign(weights.begin(), weights.end());
  peers_.enter(layer, Phase::dispatch, sent_);
  for (int i = 1; i < shape_.ranks; ++i) {
    SLUICE_RETURN_IF_ERROR(send_rows_to(peer(i), passage, rows, deadline));
  }
  write_rows(passage.own_rows.get(), passage.routing.rows(rank_), rows);
  ++sent_;
  return {};
}

DispatchHeader Hop::header_for(int peer, const Passage& passage) const {
  const StepFlags& flags = passage.flags;
  DispatchHeader header{};
  header.version = kMessageVersion;
  header.flags = shape_flags(shape_) | (flags.has_work ? kHasWork : 0u) |
                 (flags.wants_epoch ? kWantsEpoch : 0u) | (flags.more ? kMore : 0u);
  header.hidden = static_cast<uint32_t>(shape_.hidden);
  header.experts = static_cast<uint32_t>(placement_.experts_of(peer).size());
  header.rows = static_cast<uint32_t>(passage.routing.rows(peer).size());
  header.pairs = static_cast<uint32_t>(passage.routing.pairs(peer).size());
  return header;
}

Status Hop::send_rows_to(int peer, const Passage& passage, const RowSource& rows, Deadline deadline) {
  const DispatchHeader header = header_for(peer, passage);
  const auto pairs = passage.routing.pairs(peer);
  const DispatchLayout at = dispatch_layout(shape_, header.experts, header.rows, header.pairs);
  SLUICE_ASSIGN_OR_RETURN(const auto box, peers_.outbox(peer, at.end, deadline));
  std::byte* const to = box.data();
  std::memcpy(to, &header, sizeof(header));

  // Counts and padding start from zero, so that no byte of the message is left over from earlier use.
  std::memset(to + at.counts, 0, at.pairs - at.counts);
  auto* const counts = reinterpret_cast<uint32_t*>(to + at.counts);
  for (const PairEntry& pair : pairs) ++counts[pair.expert];
  if (!pairs.empty()) std::memcpy(to + at.pairs, pairs.data(), pairs.size_bytes());
  std::byte* end = to + at.weights;
  if (!shape_.exact) {
    for (const int32_t choice : passage.routing.choices(peer)) {
      std::memcpy(end, &passage.weights[static_cast<size_t>(choice)], sizeof(float));
      end += sizeof(float);
    }
  }
  std::memset(end, 0, static_cast<size_t>(to + at.rows - end));
  write_rows(to + at.rows, passage.routing.rows(peer), rows);
  return peers_.put(peer, at.end);
}

void Hop::pad_row(std::byte* row, DType type, size_t stride) const {
  const size_t used = static_cast<size_t>(shape_.hidden) * dtype_bytes(type);
  std::memset(row + used, 0, stride - used);
}

void Hop::write_rows(std::byte* to, std::span<const int32_t> tokens, const RowSource& rows) const {
  for (const int32_t token : tokens) {
    if (rows.wire.empty()) {
      convert_row(to, shape_.wire, rows.matrix.row_bytes(token), rows.matrix.dtype, shape_.hidden);
      pad_row(to, shape_.wire, stride_);
    } else {
      std::memcpy(to, rows.wire[static_cast<size_t>(token)], stride_);
    }
    to += stride_;
  }
}

Result<StepFlags> Hop::receive_rows(Deadline deadline) {
  Passage& passage = half(received_);
  peers_.enter(passage.layer, Phase::dispatch, received_);
  StepFlags any = passage.flags;
  passage.inbound.begin();
  for (int source = 0; source < shape_.ranks; ++source) {
    if (source == rank_) {
      passage.inbound.add_own(passage.routing, passage.weights, passage.own_rows.get());
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(const auto message, peers_.await(source, deadline));
    const Status added = passage.inbound.add(source, message, any);
    if (!added.ok()) return peers_.refuse(source, added);
  }
  passage.inbound.group();
  ++received_;
  return any;
}

Status Hop::send_results(const Results& results, Deadline deadline) {
  const Passage& passage = this->passage(answered_);
  peers_.enter(passage.layer, Phase::combine, answered_);
  for (int i = 1; i < shape_.ranks; ++i) {
    SLUICE_RETURN_IF_ERROR(send_results_to(peer(i), passage, results, deadline));
  }
  ++answered_;
  return {};
}

Status Hop::send_results_to(int peer, const Passage& passage, const Results& results, Deadline deadline) {
  const auto rows_in = static_cast<size_t>(passage.inbound.row_count(peer));
  const size_t rows = returned_rows(rows_in, passage.inbound.pairs(peer).size());
  const size_t bytes = combine_bytes(shape_, rows);
  SLUICE_ASSIGN_OR_RETURN(const auto box, peers_.outbox(peer, bytes, deadline));
  CombineHeader header{};
  header.version = kMessageVersion;
  header.rows = static_cast<uint32_t>(rows);
  std::memcpy(box.data(), &header, sizeof(header));
  std::byte* to = box.data() + sizeof(header);
  for (size_t row = 0; row < rows; ++row, to += returned_stride_) {
    if (shape_.exact) {
      std::memcpy(to, results.pair_row(peer, row), static_cast<size_t>(shape_.hidden) * sizeof(float));
    } else {
      results.sum_row(peer, static_cast<int>(row), to);
    }
    pad_row(to, returned_type(shape_), returned_stride_);
  }
  return peers_.put(peer, bytes);
}

Status Hop::receive_results(Deadline deadline) {
  Passage& passage = half(finished_);
  peers_.enter(passage.layer, Phase::combine, finished_);
  for (int source = 0; source < shape_.ranks; ++source) {
    if (source == rank_) continue;
    SLUICE_ASSIGN_OR_RETURN(const auto message, peers_.await(source, deadline));
    const size_t expected =
        returned_rows(passage.routing.rows(source).size(), passage.routing.pairs(source).size());
    const auto rows = read_combine(shape_, message, expected);
    if (!rows.ok()) return peers_.refuse(source, rows.status());
    passage.answers[static_cast<size_t>(source)] = *rows;
  }
  return {};
}

const std::byte* Hop::choice_row(int64_t choice, const Results& own) const {
  const Passage& passage = this->passage(finished_);
  const Routing::Slot& slot = passage.routing.slot(choice);
  if (slot.rank == rank_) return own.pair_row(rank_, static_cast<size_t>(slot.pair));
  return passage.answers[static_cast<size_t>(slot.rank)] + static_cast<size_t>(slot.pair) * returned_stride_;
}

void Hop::sum(int64_t token, const Results& own, void* out, DType out_type) const {
  if (shape_.exact) {
    sum_exact(token, own, out, out_type);
  } else {
    sum_reduced(token, own, out, out_type);
  }
}

void Hop::sum_exact(int64_t token, const Results& own, void* out, DType out_type) const {
  const Passage& passage = this->passage(finished_);
  std::array<WeightedRow, kMaxTopK> rows;
  for (int k = 0; k < shape_.top_k; ++k) {
    const int64_t choice = token * shape_.top_k + k;
    rows[static_cast<size_t>(k)] = {choice_row(choice, own), passage.weights[static_cast<size_t>(choice)],
                                    DType::float32};
  }
  sum_rows(std::span(rows).first(static_cast<size_t>(shape_.top_k)), out, out_type, shape_.hidden);
}

void Hop::sum_reduced(int64_t token, const Results& own, void* out, DType out_type) const {
  const Passage& passage = this->passage(finished_);
  // The ranks that hold any of the token's experts, ascending. Insertion keeps the first slot of each rank.
  std::array<Routing::Slot, kMaxTopK> slots;
  size_t count = 0;
  for (int k = 0; k < shape_.top_k; ++k) {
    const Routing::Slot& slot = passage.routing.slot(token * shape_.top_k + k);
    if (slot.rank < 0) continue;
    size_t at = count;
    while (at > 0 && slots[at - 1].rank > slot.rank) --at;
    if (at > 0 && slots[at - 1].rank == slot.rank) continue;
    std::copy_backward(slots.begin() + at, slots.begin() + count, slots.begin() + count + 1);
    slots[at] = slot;
    ++count;
  }
  std::array<WeightedRow, kMaxTopK> rows;
  for (size_t i = 0; i < count; ++i) {
    const Routing::Slot& slot = slots[i];
    rows[i] = {own_sum_.get(), 1.0F, returned_type(shape_)};
    if (slot.rank == rank_) {
      own.sum_row(rank_, slot.row, own_sum_.get());
    } else {
      rows[i].data =
          passage.answers[static_cast<size_t>(slot.rank)] + static_cast<size_t>(slot.row) * returned_stride_;
    }
  }
  sum_rows(std::span(rows).first(count), out, out_type, shape_.hidden);
}

}  // namespace sluice::exchange
