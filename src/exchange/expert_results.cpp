#include "exchange/expert_results.h"

#include <array>

#include "exchange/message.h"
#include "exchange/rows.h"

namespace sluice::exchange {

void ExpertResults::sum_row(int source, int row, std::byte* to) const {
  const auto pairs = inbound_.pairs(source, row);
  std::array<WeightedRow, kMaxTopK> rows;
  for (size_t i = 0; i < pairs.size(); ++i) {
    rows[i] = {pair_rows_.row_bytes(pairs[i].position), pairs[i].weight, DType::float32};
  }
  sum_rows(std::span(rows).first(pairs.size()), to, returned_type(shape_), shape_.hidden);
}

}  // namespace sluice::exchange
