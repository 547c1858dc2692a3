#include "compute/cpu/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

namespace sluice::compute::cpu {
namespace {

Status check_source(const WeightSource& source) {
  if (source.data == nullptr) return invalid_argument("weight without data");
  if (source.out <= 0 || source.in <= 0) {
    return invalid_argument(
        fmt::format("weight of shape ({}, {}); both must be positive", source.out, source.in));
  }
  switch (source.dtype) {
    case DType::float32:
    case DType::bfloat16:
      return {};
    case DType::float8_e4m3:
      break;
    default:
      return unimplemented(
          fmt::format("weight of type {}; the CPU back end multiplies with float32, bfloat16 "
                      "and float8_e4m3",
                      dtype_name(source.dtype)));
  }
  if (source.scales == nullptr) return invalid_argument("float8_e4m3 weight without block scales");
  const bool rows_fit =
      source.block_rows > 0 && (source.block_rows % kTileOut == 0 || source.block_rows >= source.out);
  const bool cols_fit = source.block_cols > 0 && source.block_cols % 4 == 0 && source.block_cols <= kBlockIn;
  if (!rows_fit || !cols_fit) {
    return unimplemented(fmt::format(
        "float8_e4m3 weight with {} x {} scale blocks; the CPU back end takes a multiple of {} rows and a "
        "multiple of 4, at most {}, columns",
        source.block_rows, source.block_cols, kTileOut, kBlockIn));
  }
  return {};
}

// Whether one of the word's four FP8 codes is 0x7f or 0xff.
bool has_fp8_nan(uint32_t word) { return (((word & 0x7f7f7f7fU) + 0x01010101U) & 0x80808080U) != 0; }

Status fp8_nan_found(const WeightSource& source) {
  const auto* codes = static_cast<const uint8_t*>(source.data);
  const auto* end = codes + source.out * source.in;
  const auto* found = std::find_if(codes, end, [](uint8_t code) { return (code & 0x7fU) == 0x7fU; });
  return invalid_argument(fmt::format("float8_e4m3 weight holds a NaN at row {}, column {}",
                                      (found - codes) / source.in, (found - codes) % source.in));
}

}  // namespace

Result<PackedMatrix> PackedMatrix::pack(const WeightSource& source, Workers& workers) {
  SLUICE_RETURN_IF_ERROR(check_source(source));
  PackedMatrix packed;
  packed.dtype_ = source.dtype;
  packed.out_ = source.out;
  packed.in_ = source.in;
  const bool fp8 = source.dtype == DType::float8_e4m3;
  if (fp8) SLUICE_RETURN_IF_ERROR(packed.pack_scales(source));
  SLUICE_ASSIGN_OR_RETURN(
      packed.words_,
      Memory::allocate(static_cast<size_t>(packed.tiles() * packed.tile_words()) * sizeof(uint32_t)));
  std::atomic<bool> nan{false};
  workers.run(packed.tiles(), source.out * source.in, [&](int64_t index) {
    if (packed.pack_tile(source, index) && fp8) nan.store(true, std::memory_order_relaxed);
  });
  if (nan.load()) return fp8_nan_found(source);
  return packed;
}

Status PackedMatrix::pack_scales(const WeightSource& source) {
  block_in_ = source.block_cols;
  scales_.resize(static_cast<size_t>(tiles() * blocks_in()));
  for (int64_t t = 0; t < tiles(); ++t) {
    const int64_t block_row = t * kTileOut / source.block_rows;
    for (int64_t b = 0; b < blocks_in(); ++b) {
      const float scale = source.scales[block_row * blocks_in() + b];
      if (!std::isfinite(scale)) {
        return invalid_argument(
            fmt::format("float8_e4m3 weight: the scale of block ({}, {}) is {}", block_row, b, scale));
      }
      scales_[static_cast<size_t>(t * blocks_in() + b)] = scale;
    }
  }
  return {};
}

// Transposes 32-bit words. Returns whether a word looks like it holds an FP8 NaN.
bool PackedMatrix::pack_tile(const WeightSource& source, int64_t index) {
  uint32_t* words = static_cast<uint32_t*>(words_.data()) + index * tile_words();
  const size_t row_bytes = static_cast<size_t>(in_) * dtype_bytes(dtype_);
  const size_t whole_words = row_bytes / 4;
  const size_t tail_bytes = row_bytes % 4;
  const int64_t lanes = std::min(kTileOut, out_ - index * kTileOut);
  const auto* rows =
      static_cast<const std::byte*>(source.data) + static_cast<size_t>(index * kTileOut) * row_bytes;
  bool nan = false;
  for (size_t w = 0; w < whole_words; ++w) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      uint32_t word;
      std::memcpy(&word, rows + static_cast<size_t>(lane) * row_bytes + 4 * w, 4);
      nan |= has_fp8_nan(word);
      words[w * kTileOut + static_cast<size_t>(lane)] = word;
    }
  }
  if (tail_bytes == 0) return nan;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    uint32_t word = 0;
    std::memcpy(&word, rows + static_cast<size_t>(lane) * row_bytes + 4 * whole_words, tail_bytes);
    nan |= has_fp8_nan(word);
    words[whole_words * kTileOut + static_cast<size_t>(lane)] = word;
  }
  return nan;
}

void PackedMatrix::read_row(int64_t row, float* out) const {
  const uint32_t* words = tile(row / kTileOut) + row % kTileOut;
  const float* scales = dtype_ == DType::float8_e4m3 ? tile_scales(row / kTileOut) : nullptr;
  for (int64_t i = 0; i < in_; ++i) {
    const uint32_t word = words[i / per_word() * kTileOut];
    switch (dtype_) {
      case DType::bfloat16:
        out[i] = bfloat16_to_float(static_cast<uint16_t>(word >> (16 * (i % 2))));
        break;
      case DType::float8_e4m3:
        out[i] = float8_e4m3_to_float(static_cast<uint8_t>(word >> (8 * (i % 4)))) * scales[i / block_in_];
        break;
      default:
        out[i] = std::bit_cast<float>(word);
    }
  }
}

}  // namespace sluice::compute::cpu
