// The results of this rank's own experts, as a hop answers with them.
#pragma once

#include "exchange/hop.h"

namespace sluice::exchange {

class ExpertResults final : public Results {
 public:
  // pair_rows: (pairs, hidden) float32, in the order of `inbound`'s grouped rows. All must outlive this.
  ExpertResults(const Shape& shape, const Inbound& inbound, ConstMatrix pair_rows)
      : shape_(shape), inbound_(inbound), pair_rows_(pair_rows) {}

  const std::byte* pair_row(int source, size_t pair) const override {
    return pair_rows_.row_bytes(inbound_.pairs(source)[pair].position);
  }
  void sum_row(int source, int row, std::byte* to) const override;

 private:
  const Shape& shape_;
  const Inbound& inbound_;
  const ConstMatrix pair_rows_;
};

}  // namespace sluice::exchange
