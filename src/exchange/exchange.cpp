// The exchange of one level: every rank puts to every rank.
#include "exchange/exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "exchange/expert_results.h"
#include "exchange/hop.h"
#include "exchange/message.h"

namespace sluice::exchange {
namespace {

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
  RankExchange(std::unique_ptr<Hop> hop, uint64_t epoch) : hop_(std::move(hop)), epoch_(epoch) {}

  Status dispatch_send(int layer, ConstMatrix x, std::span<const int32_t> experts,
                       std::span<const float> weights, StepFlags flags, Deadline deadline) override;
  Result<Received> dispatch_receive(Deadline deadline) override;
  Status combine_send(ConstMatrix pair_rows, Deadline deadline) override;
  Status combine_receive(Matrix out, Deadline deadline) override;
  bool receivable(Phase phase) override;

  Status wake(uint64_t step) override { return hop_->peers().wake(step); }
  Result<bool> wait_for_step(uint64_t step, Deadline deadline) override {
    return hop_->peers().wait_for_step(step, hop_->sent(), deadline);
  }
  void nudge() override { hop_->peers().nudge(); }
  void end_epoch() override { hop_->peers().end_epoch(); }

  const Shape& shape() const override { return hop_->shape(); }
  uint64_t epoch() const override { return epoch_; }
  std::optional<Blame> blame() const override { return hop_->peers().blame(); }
  fabric::Report report() const override { return hop_->peers().report(); }

 private:
  Status check_dispatch(const ConstMatrix& x, size_t experts, size_t weights) const;
  Status check_pair_rows(const ConstMatrix& pair_rows) const;
  Status check_out(const Matrix& out) const;

  const std::unique_ptr<Hop> hop_;
  const uint64_t epoch_;
  std::array<ConstMatrix, fabric::kHalves>
      pair_rows_;  // of the exchanges that are answered and not collected
};

Status RankExchange::check_dispatch(const ConstMatrix& x, size_t experts, size_t weights) const {
  const Shape& shape = hop_->shape();
  if (hop_->full()) {
    return invalid_argument(
        fmt::format("dispatch_send() with {} exchanges under way; call combine_receive() of the oldest first",
                    fabric::kHalves));
  }
  if (x.rows < 0 || x.rows > shape.max_tokens) {
    return invalid_argument(fmt::format("dispatch of {} tokens; this exchange takes 0 to {} (max_tokens)",
                                        x.rows, shape.max_tokens));
  }
  SLUICE_RETURN_IF_ERROR(check_dtype("x", x.dtype, true));
  SLUICE_RETURN_IF_ERROR(check_matrix("x", x, x.rows, x.rows > 0 ? shape.hidden : x.cols));
  const auto choices = static_cast<size_t>(x.rows) * static_cast<size_t>(shape.top_k);
  if (experts == choices && weights == choices) return {};
  return invalid_argument(fmt::format("dispatch of {} tokens with {} experts and {} weights; both must be {}",
                                      x.rows, experts, weights, choices));
}

Status RankExchange::dispatch_send(int layer, ConstMatrix x, std::span<const int32_t> experts,
                                   std::span<const float> weights, StepFlags flags, Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(hop_->peers().usable());
  SLUICE_RETURN_IF_ERROR(check_dispatch(x, experts.size(), weights.size()));
  return hop_->send_rows(layer, {.matrix = x, .wire = {}}, experts, weights, flags, deadline);
}

Result<Received> RankExchange::dispatch_receive(Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(hop_->peers().usable());
  if (hop_->received() == hop_->sent()) return invalid_argument("dispatch_receive() without dispatch_send()");
  const Inbound& inbound = hop_->passage(hop_->received()).inbound;
  SLUICE_ASSIGN_OR_RETURN(const StepFlags any, hop_->receive_rows(deadline));
  return Received{.expert_offsets = inbound.expert_offsets(), .rows = inbound.rows(), .any = any};
}

Status RankExchange::check_pair_rows(const ConstMatrix& pair_rows) const {
  if (hop_->answered() == hop_->received()) {
    return invalid_argument("combine_send() without dispatch_receive()");
  }
  SLUICE_RETURN_IF_ERROR(check_dtype("pair_rows", pair_rows.dtype, false));
  const auto pairs = static_cast<int64_t>(hop_->passage(hop_->answered()).inbound.rows().size());
  return check_matrix("pair_rows", pair_rows, pairs, pairs > 0 ? hop_->shape().hidden : pair_rows.cols);
}

Status RankExchange::combine_send(ConstMatrix pair_rows, Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(hop_->peers().usable());
  SLUICE_RETURN_IF_ERROR(check_pair_rows(pair_rows));
  const uint64_t seq = hop_->answered();
  pair_rows_[seq % pair_rows_.size()] = pair_rows;
  return hop_->send_results(ExpertResults(hop_->shape(), hop_->passage(seq).inbound, pair_rows), deadline);
}

Status RankExchange::check_out(const Matrix& out) const {
  if (hop_->finished() == hop_->answered()) {
    return invalid_argument("combine_receive() without combine_send()");
  }
  SLUICE_RETURN_IF_ERROR(check_dtype("out", out.dtype, false));
  const int64_t tokens = hop_->passage(hop_->finished()).routing.tokens();
  return check_matrix("out", out, tokens, tokens > 0 ? hop_->shape().hidden : out.cols);
}

Status RankExchange::combine_receive(Matrix out, Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(hop_->peers().usable());
  SLUICE_RETURN_IF_ERROR(check_out(out));
  SLUICE_RETURN_IF_ERROR(hop_->receive_results(deadline));
  const uint64_t seq = hop_->finished();
  const Hop::Passage& passage = hop_->passage(seq);
  const ExpertResults own(hop_->shape(), passage.inbound, pair_rows_[seq % pair_rows_.size()]);
  for (int64_t token = 0; token < passage.routing.tokens(); ++token) {
    hop_->sum(token, own, out.row_bytes(token), DType::float32);
  }
  hop_->finish();
  return {};
}

bool RankExchange::receivable(Phase phase) {
  const bool asked =
      phase == Phase::dispatch ? hop_->received() < hop_->sent() : hop_->finished() < hop_->answered();
  return !asked || !hop_->peers().alive() || hop_->all_arrived(phase);
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
  SLUICE_RETURN_IF_ERROR(plan(shape, placement).status());
  SLUICE_RETURN_IF_ERROR(check_fabric(shape, rank, epoch, fabric.get()));
  SLUICE_ASSIGN_OR_RETURN(
      auto hop, Hop::open(without_needless_rounding(shape), placement, rank, epoch, std::move(fabric)));
  return std::unique_ptr<Exchange>(std::make_unique<RankExchange>(std::move(hop), epoch));
}

}  // namespace sluice::exchange
