// Number formats of tensors, and the scalar conversions that define them. Kernels have vector versions of the
// same conversions; tests hold them to these.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

enum class DType : uint8_t { float32, bfloat16, float8_e4m3, int32 };

constexpr size_t dtype_bytes(DType type) {
  switch (type) {
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::bfloat16:
      return 2;
    case DType::float8_e4m3:
      return 1;
  }
  return 0;
}

constexpr std::string_view dtype_name(DType type) {
  switch (type) {
    case DType::float32:
      return "float32";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float8_e4m3:
      return "float8_e4m3";
    case DType::int32:
      return "int32";
  }
  return "unknown";
}

constexpr float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
constexpr uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// OCP FP8 E4M3 (finite: no infinity; 0x7f and 0xff are NaN): 1 sign, 4 exponent (bias 7), 3 mantissa bits.
constexpr float float8_e4m3_to_float(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80U) << 24;
  const uint32_t exponent = (bits >> 3) & 0xfU;
  const uint32_t mantissa = bits & 0x7U;
  if (exponent == 0xfU && mantissa == 0x7U) return std::bit_cast<float>(sign | 0x7fc00000U);
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 120U) << 23) | (mantissa << 20));
  const float subnormal = static_cast<float>(mantissa) * 0x1p-9F;
  return sign != 0 ? -subnormal : subnormal;
}

}  // namespace sluice
