#include "exchange/rounds.h"

#include <algorithm>

namespace sluice::exchange {
namespace {

class Rounds {
 public:
  Rounds(Exchange& exchange, const LayerInput& input, Matrix out, Deadline deadline)
      : exchange_(exchange),
        input_(input),
        out_(out),
        deadline_(deadline),
        tokens_(input.x.rows),
        most_(exchange.shape().max_tokens) {}

  Result<StepFlags> run(Experts apply) {
    StepFlags any;
    SLUICE_RETURN_IF_ERROR(send());
    do {
      SLUICE_ASSIGN_OR_RETURN(const Received received, exchange_.dispatch_receive(deadline_));
      any = received.any;
      if (collected_ < answered_) SLUICE_RETURN_IF_ERROR(collect());
      if (any.more) SLUICE_RETURN_IF_ERROR(send());
      SLUICE_ASSIGN_OR_RETURN(const ConstMatrix pair_rows, apply(received));
      SLUICE_RETURN_IF_ERROR(exchange_.combine_send(pair_rows, deadline_));
      ++answered_;
    } while (any.more);
    SLUICE_RETURN_IF_ERROR(collect());
    return any;
  }

 private:
  int64_t begin(int64_t round) const { return std::min(round * most_, tokens_); }
  int64_t count(int64_t round) const { return begin(round + 1) - begin(round); }

  template <class T>
  std::span<const T> choices(std::span<const T> all) const {
    const auto top_k = static_cast<size_t>(exchange_.shape().top_k);
    return all.subspan(static_cast<size_t>(begin(sent_)) * top_k, static_cast<size_t>(count(sent_)) * top_k);
  }

  Status send() {
    StepFlags flags = input_.flags;
    flags.more = begin(sent_ + 1) < tokens_;
    ConstMatrix x = input_.x;
    x.rows = count(sent_);
    if (x.rows > 0) x.data = input_.x.row_bytes(begin(sent_));
    SLUICE_RETURN_IF_ERROR(exchange_.dispatch_send(input_.layer, x, choices(input_.experts),
                                                   choices(input_.weights), flags, deadline_));
    ++sent_;
    return {};
  }

  Status collect() {
    Matrix out = out_;
    out.rows = count(collected_);
    if (out.rows > 0) out.data = out_.row_bytes(begin(collected_));
    ++collected_;
    return exchange_.combine_receive(out, deadline_);
  }

  Exchange& exchange_;
  const LayerInput& input_;
  const Matrix out_;
  const Deadline deadline_;
  const int64_t tokens_;
  const int64_t most_;
  int64_t sent_ = 0;
  int64_t answered_ = 0;
  int64_t collected_ = 0;
};

Status check(const Exchange& exchange, const LayerInput& input, const Matrix& out) {
  const auto choices = static_cast<size_t>(input.x.rows) * static_cast<size_t>(exchange.shape().top_k);
  if (input.experts.size() == choices && input.weights.size() == choices && out.rows == input.x.rows) {
    return {};
  }
  return invalid_argument("exchange_layer: experts and weights must be (tokens x top_k), out (tokens, hidden)");
}

}  // namespace

Result<StepFlags> exchange_layer(Exchange& exchange, const LayerInput& input, Experts apply, Matrix out,
                                 Deadline deadline) {
  SLUICE_RETURN_IF_ERROR(check(exchange, input, out));
  return Rounds(exchange, input, out, deadline).run(apply);
}

}  // namespace sluice::exchange
