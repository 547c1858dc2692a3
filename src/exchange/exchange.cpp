#include "exchange/exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "exchange/inbound.h"
#include "exchange/message.h"
#include "exchange/peers.h"
#include "exchange/routing.h"
#include "exchange/rows.h"

namespace sluice::exchange {
namespace {

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kRowAlignment}); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;

AlignedBytes allocate_aligned(size_t bytes) {
  return AlignedBytes(
      static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kRowAlignment}, std::nothrow)));
}

Status check_matrix(std::string_view name, const ConstMatrix& matrix, int64_t rows, int64_t cols) {
  if (matrix.data == nullptr && rows > 0) {
    return invalid_argument(fmt::format("{} has {} rows and no data", name, rows));
  }
  if (matrix.rows == rows && matrix.cols == cols && (matrix.stride >= cols || rows <= 1)) return {};
  return invalid_argument(fmt::format("{} is ({}, {}) with stride {}; it must be ({}, {}) with stride >= {}",
                                      name, matrix.rows, matrix.cols, matrix.stride, rows, cols, cols));
}

Status check_dtype(std::string_view name, DType found, bool bfloat16_too) {
  if (found == DType::float32 || (bfloat16_too && found == DType::bfloat16)) return {};
  return invalid_argument(fmt::format("{} is {}; it must be float32{}", name, dtype_name(found),
                                      bfloat16_too ? " or bfloat16" : ""));
}

class RankExchange final : public Exchange {
 public:
  RankExchange(const Shape& shape, const Placement& placement, int rank, uint64_t epoch,
               std::unique_ptr<fabric::Fabric> fabric, AlignedBytes own_rows, AlignedBytes own_sum)
      : shape_(without_needless_rounding(shape)),
        placement_(placement),
        rank_(rank),
        epoch_(epoch),
        stride_(row_stride(shape_)),
        returned_stride_(returned_stride(shape_)),
        peers_(rank, shape.ranks, epoch, std::move(fabric)),
        routing_(shape_, placement_),
        inbound_(shape_, rank, static_cast<int>(placement_.experts_of(rank).size())),
        own_rows_(std::move(own_rows)),
        own_sum_(std::move(own_sum)),
        answers_(static_cast<size_t>(shape.ranks)) {}

  Result<Received> dispatch(int layer, ConstMatrix x, std::span<const int32_t> experts,
                            std::span<const float> weights, StepFlags flags, Deadline deadline) override;
  Status combine(int layer, ConstMatrix pair_rows, Matrix out, Deadline deadline) override;

  Status wake(uint64_t step) override { return peers_.wake(step); }
  Result<bool> wait_for_step(uint64_t step, Deadline deadline) override {
    return peers_.wait_for_step(step, seq_, deadline);
  }
  void nudge() override { peers_.nudge(); }
  void end_epoch() override { peers_.end_epoch(); }

  const Shape& shape() const override { return shape_; }
  uint64_t epoch() const override { return epoch_; }
  std::optional<Blame> blame() const override { return peers_.blame(); }
  fabric::Report report() const override { return peers_.report(); }

 private:
  // In the order in which to send: each rank starts behind itself, so that not all send to the same one.
  int peer(int i) const { return (rank_ + i) % shape_.ranks; }

  Status check_dispatch(const ConstMatrix& x, size_t experts, size_t weights) const;
  Status check_combine(const ConstMatrix& pair_rows, const Matrix& out) const;

  Status send_rows(int peer, const ConstMatrix& x, StepFlags flags, Deadline deadline);
  void write_rows(std::byte* to, std::span<const int32_t> tokens, const ConstMatrix& x) const;
  Status receive_rows(StepFlags& any, Deadline deadline);

  Status send_results(int peer, const ConstMatrix& pair_rows, Deadline deadline);
  Status receive_results(Deadline deadline);
  void write_pairs(std::byte* to, std::span<const Inbound::Pair> pairs, const ConstMatrix& pair_rows) const;
  void write_sums(std::byte* to, std::span<const Inbound::Pair> pairs, const ConstMatrix& pair_rows) const;
  void sum_row(std::byte* to, std::span<const Inbound::Pair> pairs, const ConstMatrix& pair_rows) const;
  void pad_row(std::byte* row, DType type, size_t stride) const;

  void sum_exact(int64_t token, const ConstMatrix& pair_rows, float* out) const;
  void sum_reduced(int64_t token, const ConstMatrix& pair_rows, float* out) const;

  size_t returned_rows(int source_rows, size_t pairs) const {
    return shape_.exact ? pairs : static_cast<size_t>(source_rows);
  }

  const Shape shape_;
  const Placement placement_;
  const int rank_;
  const uint64_t epoch_;
  const size_t stride_;           // of dispatched rows
  const size_t returned_stride_;  // of combined ones
  Peers peers_;
  Routing routing_;
  Inbound inbound_;
  AlignedBytes own_rows_;                  // (max_tokens) in the wire type: what this rank sends to itself
  AlignedBytes own_sum_;                   // one row
  std::vector<float> weights_;             // (tokens x top_k) of the exchange under way
  std::vector<const std::byte*> answers_;  // by rank: the rows of its combine message
  uint64_t seq_ = 0;
  bool dispatched_ = false;
};

Status RankExchange::check_dispatch(const ConstMatrix& x, size_t experts, size_t weights) const {
  if (dispatched_) return invalid_argument("dispatch() was called twice without combine()");
  if (x.rows < 0 || x.rows > shape_.max_tokens) {
    return invalid_argument(fmt::format("dispatch of {} tokens; this exchange takes 0 to {} (max_tokens)",
                                        x.rows, shape_.max_tokens));
  }
  SLUICE_RETURN_IF_ERROR(check_dtype("x", x.dtype, true));
  SLUICE_RETURN_IF_ERROR(check_matrix("x", x, x.rows, x.rows > 0 ? shape_.hidden : x.cols));
  const auto choices = static_cast<size_t>(x.rows) * static_cast<size_t>(shape_.top_k);
  if (experts == choices && weights == choices) return {};
  return invalid_argument(fmt::format("dispatch of {} tokens with {} experts and {} weights; both must be {}",
                                      x.rows, experts, weights, choices));
}

Result<Received> RankExchange::dispatch(int layer, ConstMatrix x, std::span<const int32_t> experts,
                                        std::span<const float> weights, StepFlags flags, Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(peers_.usable());
  SLUICE_RETURN_IF_ERROR(check_dispatch(x, experts.size(), weights.size()));
  SLUICE_RETURN_IF_ERROR(routing_.build(experts, static_cast<int>(x.rows)));
  weights_.assign(weights.begin(), weights.end());
  peers_.enter(layer, Phase::dispatch, seq_);

  for (int i = 1; i < shape_.ranks; ++i) SLUICE_RETURN_IF_ERROR(send_rows(peer(i), x, flags, deadline));
  write_rows(own_rows_.get(), routing_.rows(rank_), x);

  Received received;
  received.any = flags;
  SLUICE_RETURN_IF_ERROR(receive_rows(received.any, deadline));
  received.expert_offsets = inbound_.expert_offsets();
  received.rows = inbound_.rows();
  dispatched_ = true;
  return received;
}

Status RankExchange::send_rows(int peer, const ConstMatrix& x, StepFlags flags, Deadline deadline) {
  const auto tokens = routing_.rows(peer);
  const auto pairs = routing_.pairs(peer);
  const auto choices = routing_.choices(peer);
  const size_t experts = placement_.experts_of(peer).size();
  const DispatchLayout at = dispatch_layout(shape_, experts, tokens.size(), pairs.size());
  SLUICE_ASSIGN_OR_RETURN(const auto box, peers_.outbox(peer, at.end, deadline));
  std::byte* const to = box.data();

  DispatchHeader header{};
  header.version = kMessageVersion;
  header.flags =
      shape_flags(shape_) | (flags.has_work ? kHasWork : 0u) | (flags.wants_epoch ? kWantsEpoch : 0u);
  header.hidden = static_cast<uint32_t>(shape_.hidden);
  header.experts = static_cast<uint32_t>(experts);
  header.rows = static_cast<uint32_t>(tokens.size());
  header.pairs = static_cast<uint32_t>(pairs.size());
  std::memcpy(to, &header, sizeof(header));

  // Counts and padding start from zero, so that no byte of the message is left over from earlier use.
  std::memset(to + at.counts, 0, at.pairs - at.counts);
  auto* const counts = reinterpret_cast<uint32_t*>(to + at.counts);
  for (const PairEntry& pair : pairs) ++counts[pair.expert];
  if (!pairs.empty()) std::memcpy(to + at.pairs, pairs.data(), pairs.size_bytes());
  std::byte* end = to + at.weights;
  if (!shape_.exact) {
    for (const int32_t choice : choices) {
      std::memcpy(end, &weights_[static_cast<size_t>(choice)], sizeof(float));
      end += sizeof(float);
    }
  }
  std::memset(end, 0, static_cast<size_t>(to + at.rows - end));
  write_rows(to + at.rows, tokens, x);
  return peers_.put(peer, at.end);
}

void RankExchange::pad_row(std::byte* row, DType type, size_t stride) const {
  const size_t used = static_cast<size_t>(shape_.hidden) * dtype_bytes(type);
  std::memset(row + used, 0, stride - used);
}

void RankExchange::write_rows(std::byte* to, std::span<const int32_t> tokens, const ConstMatrix& x) const {
  for (const int32_t token : tokens) {
    convert_row(to, shape_.wire, x.row_bytes(token), x.dtype, shape_.hidden);
    pad_row(to, shape_.wire, stride_);
    to += stride_;
  }
}

Status RankExchange::receive_rows(StepFlags& any, Deadline deadline) {
  inbound_.begin();
  for (int source = 0; source < shape_.ranks; ++source) {
    if (source == rank_) {
      inbound_.add_own(routing_, weights_, own_rows_.get());
      continue;
    }
    SLUICE_ASSIGN_OR_RETURN(const auto message, peers_.await(source, deadline));
    const Status added = inbound_.add(source, message, any);
    if (!added.ok()) return peers_.refuse(source, added);
  }
  inbound_.group();
  return {};
}

Status RankExchange::check_combine(const ConstMatrix& pair_rows, const Matrix& out) const {
  if (!dispatched_) return invalid_argument("combine() was called without dispatch()");
  SLUICE_RETURN_IF_ERROR(check_dtype("pair_rows", pair_rows.dtype, false));
  SLUICE_RETURN_IF_ERROR(check_dtype("out", out.dtype, false));
  const auto pairs = static_cast<int64_t>(inbound_.rows().size());
  SLUICE_RETURN_IF_ERROR(
      check_matrix("pair_rows", pair_rows, pairs, pairs > 0 ? shape_.hidden : pair_rows.cols));
  const int64_t tokens = routing_.tokens();
  return check_matrix("out", out, tokens, tokens > 0 ? shape_.hidden : out.cols);
}

Status RankExchange::combine(int layer, ConstMatrix pair_rows, Matrix out, Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(peers_.usable());
  SLUICE_RETURN_IF_ERROR(check_combine(pair_rows, out));
  peers_.enter(layer, Phase::combine, seq_);

  for (int i = 1; i < shape_.ranks; ++i) SLUICE_RETURN_IF_ERROR(send_results(peer(i), pair_rows, deadline));
  SLUICE_RETURN_IF_ERROR(receive_results(deadline));
  for (int64_t token = 0; token < routing_.tokens(); ++token) {
    if (shape_.exact) {
      sum_exact(token, pair_rows, out.row<float>(token));
    } else {
      sum_reduced(token, pair_rows, out.row<float>(token));
    }
  }
  dispatched_ = false;
  ++seq_;
  return {};
}

Status RankExchange::send_results(int peer, const ConstMatrix& pair_rows, Deadline deadline) {
  const auto pairs = inbound_.pairs(peer);
  const size_t rows = returned_rows(inbound_.row_count(peer), pairs.size());
  const size_t bytes = combine_bytes(shape_, rows);
  SLUICE_ASSIGN_OR_RETURN(const auto box, peers_.outbox(peer, bytes, deadline));
  CombineHeader header{};
  header.version = kMessageVersion;
  header.rows = static_cast<uint32_t>(rows);
  std::memcpy(box.data(), &header, sizeof(header));
  if (shape_.exact) {
    write_pairs(box.data() + sizeof(header), pairs, pair_rows);
  } else {
    write_sums(box.data() + sizeof(header), pairs, pair_rows);
  }
  return peers_.put(peer, bytes);
}

void RankExchange::write_pairs(std::byte* to, std::span<const Inbound::Pair> pairs,
                               const ConstMatrix& pair_rows) const {
  for (const Inbound::Pair& pair : pairs) {
    convert_row(to, DType::float32, pair_rows.row_bytes(pair.position), DType::float32, shape_.hidden);
    pad_row(to, DType::float32, returned_stride_);
    to += returned_stride_;
  }
}

void RankExchange::write_sums(std::byte* to, std::span<const Inbound::Pair> pairs,
                              const ConstMatrix& pair_rows) const {
  while (!pairs.empty()) {
    size_t count = 1;
    while (count < pairs.size() && pairs[count].row == pairs[0].row) ++count;
    sum_row(to, pairs.first(count), pair_rows);
    pairs = pairs.subspan(count);
    to += returned_stride_;
  }
}

// What this rank's experts add to one row, in the wire type.
void RankExchange::sum_row(std::byte* to, std::span<const Inbound::Pair> pairs,
                           const ConstMatrix& pair_rows) const {
  std::array<WeightedRow, kMaxTopK> rows;
  for (size_t i = 0; i < pairs.size(); ++i) {
    rows[i] = {pair_rows.row_bytes(pairs[i].position), pairs[i].weight, DType::float32};
  }
  sum_rows(std::span(rows).first(pairs.size()), to, shape_.wire, shape_.hidden);
  pad_row(to, shape_.wire, returned_stride_);
}

Status RankExchange::receive_results(Deadline deadline) {
  for (int source = 0; source < shape_.ranks; ++source) {
    if (source == rank_) continue;
    SLUICE_ASSIGN_OR_RETURN(const auto message, peers_.await(source, deadline));
    const size_t expected =
        returned_rows(static_cast<int>(routing_.rows(source).size()), routing_.pairs(source).size());
    const auto rows = read_combine(shape_, message, expected);
    if (!rows.ok()) return peers_.refuse(source, rows.status());
    answers_[static_cast<size_t>(source)] = *rows;
  }
  return {};
}

void RankExchange::sum_exact(int64_t token, const ConstMatrix& pair_rows, float* out) const {
  const auto own = inbound_.pairs(rank_);
  std::array<WeightedRow, kMaxTopK> rows;
  for (int k = 0; k < shape_.top_k; ++k) {
    const int64_t choice = token * shape_.top_k + k;
    const Routing::Slot& slot = routing_.slot(choice);
    WeightedRow& row = rows[static_cast<size_t>(k)];
    row.weight = weights_[static_cast<size_t>(choice)];
    if (slot.rank == rank_) {
      row.data = pair_rows.row_bytes(own[static_cast<size_t>(slot.pair)].position);
    } else {
      row.data = answers_[static_cast<size_t>(slot.rank)] + static_cast<size_t>(slot.pair) * returned_stride_;
    }
  }
  sum_rows(std::span(rows).first(static_cast<size_t>(shape_.top_k)), out, DType::float32, shape_.hidden);
}

void RankExchange::sum_reduced(int64_t token, const ConstMatrix& pair_rows, float* out) const {
  // The ranks that hold any of the token's experts, ascending. Insertion keeps the first slot of each rank.
  std::array<Routing::Slot, kMaxTopK> slots;
  size_t count = 0;
  for (int k = 0; k < shape_.top_k; ++k) {
    const Routing::Slot& slot = routing_.slot(token * shape_.top_k + k);
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
    rows[i] = {own_sum_.get(), 1.0F, shape_.wire};
    if (slot.rank != rank_) {
      rows[i].data =
          answers_[static_cast<size_t>(slot.rank)] + static_cast<size_t>(slot.row) * returned_stride_;
      continue;
    }
    const auto own = inbound_.pairs(rank_).subspan(static_cast<size_t>(slot.pair));
    const auto next =
        std::find_if(own.begin(), own.end(), [&](const auto& pair) { return pair.row != slot.row; });
    sum_row(own_sum_.get(), own.first(static_cast<size_t>(next - own.begin())), pair_rows);
  }
  sum_rows(std::span(rows).first(count), out, DType::float32, shape_.hidden);
}

Status check_fabric(const Shape& shape, int rank, uint64_t epoch, const fabric::Fabric* fabric) {
  if (rank < 0 || rank >= shape.ranks) {
    return invalid_argument(fmt::format("exchange: rank is {}; it must be 0 to {}", rank, shape.ranks - 1));
  }
  if ((fabric == nullptr) != (shape.ranks == 1)) {
    return invalid_argument(fmt::format("exchange: {} ranks {} a fabric; one rank has none, several have one",
                                        shape.ranks, fabric == nullptr ? "without" : "with"));
  }
  if (fabric == nullptr) return {};
  if (fabric->rank() == rank && fabric->ranks() == shape.ranks && fabric->epoch() == epoch) return {};
  return invalid_argument(
      fmt::format("exchange of rank {} of {} in epoch {} on the fabric of rank {} of {} in epoch {}", rank,
                  shape.ranks, epoch, fabric->rank(), fabric->ranks(), fabric->epoch()));
}

}  // namespace

Result<std::unique_ptr<Exchange>> Exchange::open(const Shape& shape, const Placement& placement, int rank,
                                                 uint64_t epoch, std::unique_ptr<fabric::Fabric> fabric) {
  SLUICE_ASSIGN_OR_RETURN(const Plan needs, plan(shape, placement));
  SLUICE_RETURN_IF_ERROR(check_fabric(shape, rank, epoch, fabric.get()));
  AlignedBytes own_rows = allocate_aligned(needs.own_bytes);
  AlignedBytes own_sum = allocate_aligned(row_stride(without_needless_rounding(shape)));
  if (!own_rows || !own_sum) {
    return Status(Code::resource_exhausted,
                  fmt::format("exchange: no memory for {} ({})", needs.own_bytes, needs.formula));
  }
  return std::unique_ptr<Exchange>(std::make_unique<RankExchange>(
      shape, placement, rank, epoch, std::move(fabric), std::move(own_rows), std::move(own_sum)));
}

}  // namespace sluice::exchange
