// The experts of one layer: gate, up, activation, down. Rows are grouped by expert, so each weight is read
// once a step however many rows want it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/matrix.h"
#include "compute/cpu/memory.h"
#include "compute/cpu/pack.h"
#include "compute/cpu/workers.h"
#include "compute/ops.h"

namespace sluice::compute::cpu {

struct PackedExpert {
  PackedMatrix gate;  // (inter, hidden)
  PackedMatrix up;    // (inter, hidden)
  PackedMatrix down;  // (hidden, inter)
};

class CpuExperts : public Experts {
 public:
  static Result<std::unique_ptr<CpuExperts>> prepare(std::span<const ExpertSource> sources, Workers& workers);

  int count() const override { return static_cast<int>(experts_.size()); }
  size_t bytes() const override;
  const PackedExpert& at(int64_t index) const { return experts_[static_cast<size_t>(index)]; }
  int64_t hidden() const { return experts_.empty() ? 0 : experts_[0].gate.in(); }
  int64_t inter() const { return experts_.empty() ? 0 : experts_[0].gate.out(); }

 private:
  std::vector<PackedExpert> experts_;
};

struct ExpertScratch {
  Scratch inputs;
  Scratch inner;
};

// Backend::experts. `inner_type`: what the inner activation is rounded to.
void run_experts(const CpuExperts& experts, std::span<const int32_t> offsets,
                 std::span<const std::byte* const> rows, DType row_type, DType inner_type, Matrix out,
                 Workers& workers, ExpertScratch& scratch);

}  // namespace sluice::compute::cpu
