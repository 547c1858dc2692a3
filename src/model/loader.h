// From names in a checkpoint to weights that a back end has prepared. Sizes come from config.json; a tensor
// that has others is refused by name with both. Counts the bytes it prepared.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "checkpoint/weights.h"
#include "compute/ops.h"

namespace sluice::model {

class Loader {
 public:
  Loader(const checkpoint::Checkpoint& checkpoint, const checkpoint::ModelConfig& config,
         compute::Backend& backend)
      : checkpoint_(checkpoint), config_(config), backend_(backend) {}

  // "<name>.weight", (out, in).
  Result<std::unique_ptr<compute::Weight>> matrix(const std::string& name, int64_t out, int64_t in);
  // "<name>.weight", (length,).
  Result<std::unique_ptr<compute::Buffer>> vector(const std::string& name, int64_t length);
  // "<prefix>.<expert>.gate_proj|up_proj|down_proj.weight" of the listed experts; looks at no other.
  Result<std::unique_ptr<compute::Experts>> experts(const std::string& prefix, std::span<const int> experts);

  size_t bytes() const { return bytes_; }

 private:
  Result<checkpoint::MatrixView> view(const std::string& name, int64_t out, int64_t in) const;

  const checkpoint::Checkpoint& checkpoint_;
  const checkpoint::ModelConfig& config_;
  compute::Backend& backend_;
  size_t bytes_ = 0;
};

}  // namespace sluice::model
