#pragma once
// Element types and their scalar conversions (round to nearest even, as IEEE 754 and PyTorch do).
// Pure functions, thread-safe. F8E4M3 is the "fn" kind: no infinity, one NaN, largest value 448.
// I4x2 is two integers from -8 to 7 in a byte, in two's complement, the one of the even column in the low bits: a
// matrix [rows, columns] of them is a tensor [rows, columns / 2]. U4x2 is the same of integers from 0 to 15.

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/check.h"

namespace fathom::tensor {

enum class DType : uint8_t { kF32, kBf16, kF16, kF8E4M3, kI64, kI32, kI8, kU8, kU64, kI4x2, kU4x2 };

int64_t dtype_bytes(DType dtype);
std::string_view dtype_name(DType dtype);  // "f32", "bf16", "f16", "f8_e4m3", "i64", ...

// Storage types, so that Tensor::as<Bf16>() is checked.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct F8E4M3 {
  uint8_t bits;
};
struct I4x2 {
  uint8_t bits;

  int even() const { return static_cast<int8_t>(bits << 4) >> 4; }
  int odd() const { return static_cast<int8_t>(bits) >> 4; }
};
struct U4x2 {
  uint8_t bits;

  int even() const { return bits & 15; }
  int odd() const { return bits >> 4; }
};

// Two values of 4 bits in an element.
constexpr bool holds_pairs(DType dtype) { return dtype == DType::kI4x2 || dtype == DType::kU4x2; }

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::kBf16;
};
template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<F8E4M3> {
  static constexpr DType value = DType::kF8E4M3;
};
template <>
struct DTypeOf<I4x2> {
  static constexpr DType value = DType::kI4x2;
};
template <>
struct DTypeOf<U4x2> {
  static constexpr DType value = DType::kU4x2;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<uint64_t> {
  static constexpr DType value = DType::kU64;
};

inline float to_float(float v) { return v; }
inline float to_float(Bf16 v) { return std::bit_cast<float>(uint32_t{v.bits} << 16); }
float to_float(F16 v);
float to_float(F8E4M3 v);

template <class T>
T from_float(float v);
template <>
inline float from_float<float>(float v) {
  return v;
}
template <>
Bf16 from_float<Bf16>(float v);
template <>
F16 from_float<F16>(float v);
// Saturates to +-448 as the quantisers do; NaN stays NaN.
template <>
F8E4M3 from_float<F8E4M3>(float v);

}  // namespace fathom::tensor
