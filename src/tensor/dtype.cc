#include "tensor/dtype.h"

#include <array>
#include <limits>

namespace fathom::tensor {
namespace {

std::array<float, 256> make_f8_table() {
  std::array<float, 256> table{};
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
    float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if ((bits & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
    table[static_cast<size_t>(bits)] = (bits & 0x80) != 0 ? -value : value;
  }
  return table;
}

}  // namespace

int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kF8E4M3:
    case DType::kI8:
    case DType::kU8:
    case DType::kI4x2:
    case DType::kU4x2:
      return 1;
    case DType::kI64:
    case DType::kU64:
      return 8;
  }
  FATHOM_CHECK(false, "dtype " << static_cast<int>(dtype));
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kF8E4M3:
      return "f8_e4m3";
    case DType::kI64:
      return "i64";
    case DType::kI32:
      return "i32";
    case DType::kI8:
      return "i8";
    case DType::kU8:
      return "u8";
    case DType::kU64:
      return "u64";
    case DType::kI4x2:
      return "i4x2";
    case DType::kU4x2:
      return "u4x2";
  }
  return "?";
}

float to_float(F16 v) {
  const uint32_t sign = (uint32_t{v.bits} & 0x8000u) << 16;
  const uint32_t exponent = (v.bits >> 10) & 31u, mantissa = v.bits & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

float to_float(F8E4M3 v) {
  static const std::array<float, 256> table = make_f8_table();
  return table[v.bits];
}

template <>
Bf16 from_float<Bf16>(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  if (std::isnan(v)) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

template <>
F16 from_float<F16>(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  if (std::isnan(v)) return {static_cast<uint16_t>(sign | 0x7e00u)};
  const float magnitude = std::fabs(v);
  if (magnitude >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x1p-14f) {  // subnormal: the integer multiple of 2^-24 nearest to it
    return {
        static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f)))};
  }
  const uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + ((bits >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)))};
}

template <>
F8E4M3 from_float<F8E4M3>(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  if (std::isnan(v)) return {static_cast<uint8_t>(sign | 0x7fu)};
  const float magnitude = std::fabs(v);
  if (magnitude >= 448.0f) return {static_cast<uint8_t>(sign | 0x7eu)};
  if (magnitude < 0x1p-6f) {  // subnormal: multiples of 2^-9
    return {static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(magnitude * 512.0f)))};
  }
  const uint32_t rounded = (bits & 0x7fffffffu) + 0x7ffffu + ((bits >> 20) & 1u);
  return {static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)))};
}

}  // namespace fathom::tensor
