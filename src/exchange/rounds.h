// One layer's exchange for any number of tokens, in memory that does not grow with them: rounds of at most
// Shape::max_tokens tokens a rank. Every round is an exchange of its own. Every rank takes part in as many
// rounds as the rank with most tokens needs; the `more` bit of the dispatch headers says so to all at once,
// so no count is agreed on beforehand.
//
// While this rank's experts work on a round, the rows of the next one are under way already.
#pragma once

#include "base/function_ref.h"
#include "exchange/exchange.h"

namespace sluice::exchange {

// One rank's part in a layer, as of Exchange::dispatch_send(), but of any number of tokens. flags.more is
// not the caller's to set.
struct LayerInput {
  int layer = 0;
  ConstMatrix x;
  std::span<const int32_t> experts;
  std::span<const float> weights;
  StepFlags flags;
};

// Gives (pairs, hidden) float32 rows for what arrived, unweighted. They are read until it is called again or
// the layer is over.
using Experts = FunctionRef<Result<ConstMatrix>(const Received& received)>;

// out: (tokens, hidden) float32, overwritten. Returns the OR of all ranks' flags. Errors as the calls of
// Exchange have them.
Result<StepFlags> exchange_layer(Exchange& exchange, const LayerInput& input, Experts apply, Matrix out,
                                 Deadline deadline);

}  // namespace sluice::exchange
