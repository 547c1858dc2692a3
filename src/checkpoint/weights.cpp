#include "checkpoint/weights.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

namespace sluice::checkpoint {
namespace {

constexpr int64_t blocks_for(int64_t extent, int block) { return (extent + block - 1) / block; }

Status attach_scales(const Checkpoint& checkpoint, const std::string& name, const BlockQuantization& blocks,
                     MatrixView& matrix) {
  const int64_t rows = blocks_for(matrix.out, blocks.block_rows);
  const int64_t cols = blocks_for(matrix.in, blocks.block_cols);
  SLUICE_ASSIGN_OR_RETURN(const TensorView scales, checkpoint.find(name, {rows, cols}));
  matrix.block_rows = blocks.block_rows;
  matrix.block_cols = blocks.block_cols;
  if (scales.dtype == DType::float32) {
    matrix.scales = reinterpret_cast<const float*>(scales.data);
  } else if (scales.dtype == DType::bfloat16) {
    auto converted = std::make_shared<std::vector<float>>(static_cast<size_t>(rows * cols));
    const auto* stored = reinterpret_cast<const uint16_t*>(scales.data);
    for (size_t i = 0; i < converted->size(); ++i) (*converted)[i] = bfloat16_to_float(stored[i]);
    matrix.scales = converted->data();
    matrix.converted_scales = std::move(converted);
  } else {
    return unimplemented(fmt::format("{} has dtype {}; scales are float32 or bfloat16",
                                     checkpoint.where(name), dtype_name(scales.dtype)));
  }
  for (int64_t i = 0; i < rows * cols; ++i) {
    if (!std::isfinite(matrix.scales[i])) {
      return data_loss(fmt::format("{} holds {} at block [{}, {}]; a scale must be finite",
                                   checkpoint.where(name), matrix.scales[i], i / cols, i % cols));
    }
  }
  return {};
}

}  // namespace

Result<MatrixView> find_matrix(const Checkpoint& checkpoint, const std::string& name, int64_t out, int64_t in,
                               const std::optional<BlockQuantization>& quantization) {
  const std::string weight = name + ".weight";
  const std::string scale = name + ".weight_scale_inv";
  SLUICE_ASSIGN_OR_RETURN(const TensorView tensor, checkpoint.find(weight, {out, in}));
  MatrixView matrix{.data = tensor.data, .dtype = tensor.dtype, .out = out, .in = in};
  switch (tensor.dtype) {
    case DType::float32:
    case DType::bfloat16:
      if (checkpoint.contains(scale)) {
        return data_loss(fmt::format("{} is {}, but has scales ('{}'); only float8_e4m3 is scaled",
                                     checkpoint.where(weight), dtype_name(tensor.dtype), scale));
      }
      return matrix;
    case DType::float8_e4m3:
      if (!quantization) {
        return invalid_argument(
            fmt::format("{} is float8_e4m3, but config.json has no quantization_config; it must say "
                        "quant_method 'fp8' and "
                        "weight_block_size",
                        checkpoint.where(weight)));
      }
      SLUICE_RETURN_IF_ERROR(attach_scales(checkpoint, scale, *quantization, matrix));
      return matrix;
    case DType::int32:
      break;
  }
  return unimplemented(fmt::format("{} is {}; a weight matrix is float32, bfloat16 or float8_e4m3",
                                   checkpoint.where(weight), dtype_name(tensor.dtype)));
}

Result<TensorView> find_vector(const Checkpoint& checkpoint, const std::string& name, int64_t length) {
  SLUICE_ASSIGN_OR_RETURN(TensorView tensor, checkpoint.find(name, {length}));
  if (tensor.dtype != DType::float32 && tensor.dtype != DType::bfloat16) {
    return unimplemented(fmt::format("{} is {}; a weight vector is float32 or bfloat16",
                                     checkpoint.where(name), dtype_name(tensor.dtype)));
  }
  return tensor;
}

}  // namespace sluice::checkpoint
