#pragma once
// Conversions between the storage types of tensor/dtype.h and float, on the device.
//
//   float v = to_float(x[i]);            // x: const float*, const Bf16* or const F8E4M3*
//   y[i] = from_float<Bf16>(v);          // to nearest even
//
// Pure functions.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "tensor/dtype.h"
#include "tensor/scale_block.h"

namespace fathom::cuda {

// In the width of device arithmetic.
inline constexpr int kScaleBlock = static_cast<int>(tensor::kScaleBlock);
__device__ __forceinline__ int scale_blocks(int channels) {
  return (channels + kScaleBlock - 1) / kScaleBlock;
}

using tensor::Bf16, tensor::F8E4M3;

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(Bf16 v) {
  return __uint_as_float(static_cast<uint32_t>(v.bits) << 16);
}
// Two e4m3 values to two halves, exactly; the low byte becomes the low half.
__device__ __forceinline__ uint32_t e4m3x2_to_half2(uint16_t pair) {
  uint32_t out;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"(pair));
  return out;
}
__device__ __forceinline__ float to_float(F8E4M3 v) {
  const uint32_t halves = e4m3x2_to_half2(v.bits);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(halves & 0xffffu)));
}

// Two floats to two e4m3 values, to nearest even, saturating to +-448; NaN stays NaN. `low` becomes the low byte.
__device__ __forceinline__ uint16_t floats_to_e4m3x2(float low, float high) {
  uint16_t out;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
}
// Two floats to two bf16 values, to nearest even. `low` becomes the low half.
__device__ __forceinline__ uint32_t floats_to_bf16x2(float low, float high) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
__device__ __forceinline__ float bf16x2_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16x2_high(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

template <class T>
__device__ __forceinline__ T from_float(float v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return Bf16{static_cast<uint16_t>(floats_to_bf16x2(v, 0.0f) & 0xffffu)};
  } else {
    static_assert(std::is_same_v<T, F8E4M3>);
    return F8E4M3{static_cast<uint8_t>(floats_to_e4m3x2(v, 0.0f) & 0xffu)};
  }
}

// The scale of 128 channels of this largest magnitude (ops/quantize_fp8.h). A value's quotient with it is a
// correctly rounded division: __fdiv_rn(v, scale).
__device__ __forceinline__ float fp8_scale(float amax) {
  return __fdiv_rn(fmaxf(amax, 1e-10f), 448.0f);
}

}  // namespace fathom::cuda
