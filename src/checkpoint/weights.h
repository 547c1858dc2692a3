// Weights by name, with their quantization: what a matrix "name.weight" means together with
// "name.weight_scale_inv" and the configuration's quantization_config.
//
// FP8 e4m3 without a quantization_config, without its scales, or scales beside a matrix that is not FP8, are
// refused: each would give numbers that look like a model's and are not.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"

namespace sluice::checkpoint {

// (out, in), row-major, in the checkpoint's mapping. Float8 values are to be multiplied by the scale of their
// block: scales is (ceil(out / block_rows), ceil(in / block_cols)); null for other types.
struct MatrixView {
  const std::byte* data = nullptr;
  DType dtype = DType::float32;
  int64_t out = 0;
  int64_t in = 0;
  const float* scales = nullptr;
  int block_rows = 0;
  int block_cols = 0;
  // What `scales` points to if the file's are bfloat16.
  std::shared_ptr<const std::vector<float>> converted_scales = nullptr;
};

// `name` without ".weight".
Result<MatrixView> find_matrix(const Checkpoint& checkpoint, const std::string& name, int64_t out, int64_t in,
                               const std::optional<BlockQuantization>& quantization);

// A norm's weight or a bias, under its full name: float32 or bfloat16.
Result<TensorView> find_vector(const Checkpoint& checkpoint, const std::string& name, int64_t length);

}  // namespace sluice::checkpoint
