#pragma once
// Eight values at a time: what a thread of the element-wise kernels holds. Whole and aligned vectors are one
// 16-byte access; others go element by element, to the same threads, so no sum depends on alignment.
//
//   Vector v = load_vector(row, begin, dim, aligned);       // values past dim are 0
//   store_vector(v, out, begin, dim, aligned);
//   quantize_vector(v, q, begin, dim, aligned, scale);      // 16 neighbouring lanes hold 128 channels
//
// Activations are read with plain loads, which stay behind wait_for_previous().

#include <cstdint>
#include <cstring>

#include "cuda/device/convert.cuh"
#include "tensor/tensor.h"

namespace fathom::cuda {

inline constexpr int kVector = 8;
// Vectors of a block of channels that share a scale.
inline constexpr int kScaleVectors = kScaleBlock / kVector;

struct Vector {
  float at[kVector];
};

__device__ __forceinline__ void unpack(uint4 from, Vector& to) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to.at[2 * i] = bf16x2_low(words[i]);
    to.at[2 * i + 1] = bf16x2_high(words[i]);
  }
}

__device__ __forceinline__ uint4 pack(const Vector& v) {
  return {floats_to_bf16x2(v.at[0], v.at[1]), floats_to_bf16x2(v.at[2], v.at[3]),
          floats_to_bf16x2(v.at[4], v.at[5]), floats_to_bf16x2(v.at[6], v.at[7])};
}

// As bf16 holds them.
__device__ __forceinline__ void round_to_bf16(Vector& v) { unpack(pack(v), v); }

// A vector as memory holds it, which takes the fewest registers.
template <class T>
struct Words {
  uint4 at[sizeof(T) / 2];
};

__device__ __forceinline__ Vector unpack(const Words<Bf16>& from) {
  Vector v;
  unpack(from.at[0], v);
  return v;
}
__device__ __forceinline__ Vector unpack(const Words<float>& from) {
  Vector v;
  memcpy(v.at, from.at, sizeof(v.at));
  return v;
}

// Values past dim are 0.
template <class T>
__device__ __forceinline__ Words<T> load_words(const T* row, int begin, int dim, bool aligned) {
  Words<T> words;
  if (aligned && begin + kVector <= dim) {
    const uint4* const from = reinterpret_cast<const uint4*>(row + begin);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) words.at[i] = from[i];
    return words;
  }
  T values[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) values[i] = begin + i < dim ? row[begin + i] : T{};
  memcpy(words.at, values, sizeof(values));
  return words;
}

template <class T>
__device__ __forceinline__ Vector load_vector(const T* row, int begin, int dim, bool aligned) {
  return unpack(load_words(row, begin, dim, aligned));
}

__device__ __forceinline__ void store_vector(const Vector& v, Bf16* row, int begin, int dim,
                                             bool aligned) {
  if (aligned && begin + kVector <= dim) {
    *reinterpret_cast<uint4*>(row + begin) = pack(v);
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    if (begin + i < dim) row[begin + i] = from_float<Bf16>(v.at[i]);
}

// x / scale, correctly rounded, without the instructions of a division in general: a quotient by the reciprocal and
// one correction (Markstein 1990). Every bf16 number by the scale of every bf16 amax was checked against the
// division; below 2^-20, which is 0 in e4m3, the bits may differ.
__device__ __forceinline__ float quotient(float x, float scale, float reciprocal) {
  const float first = x * reciprocal;
  const float left = __fmaf_rn(-first, scale, x);
  return copysignf(__fmaf_rn(left, reciprocal, first), x);
}

// Quantises 128 channels that 16 neighbouring lanes hold, zeros past dim (ops/quantize_fp8.h). REQUIRES: every
// lane of the warp calls; begin / 8 is a multiple of 16 in the first lane of each half.
__device__ __forceinline__ void quantize_vector(const Vector& v, F8E4M3* q, int begin, int dim,
                                                bool aligned, float* scales) {
  float amax = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i) amax = fmaxf(amax, fabsf(v.at[i]));
#pragma unroll
  for (int lanes = kScaleVectors / 2; lanes > 0; lanes /= 2)
    amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, lanes));
  if (begin >= dim) return;
  const float scale = fp8_scale(amax);
  const float reciprocal = __frcp_rn(scale);
  // By infinity: the reciprocal is 0, and with 1 for the divisor the correction leaves the products with it as they
  // are.
  const float divisor = scale == INFINITY ? 1.0f : scale;
  uint16_t pairs[kVector / 2];
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i)
    pairs[i] = floats_to_e4m3x2(quotient(v.at[2 * i], divisor, reciprocal),
                                quotient(v.at[2 * i + 1], divisor, reciprocal));
  if (begin % (kScaleVectors * kVector) == 0) scales[begin / (kScaleVectors * kVector)] = scale;
  if (aligned && begin + kVector <= dim) {
    *reinterpret_cast<uint2*>(q + begin) = {pairs[0] | static_cast<uint32_t>(pairs[1]) << 16,
                                            pairs[2] | static_cast<uint32_t>(pairs[3]) << 16};
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    if (begin + i < dim)
      q[begin + i].bits = static_cast<uint8_t>(pairs[i / 2] >> (i % 2 == 0 ? 0 : 8));
}
#ifndef __CUDACC_RTC__
// Whether every row starts at a multiple of this many bytes. A null tensor does not mind.
inline bool rows_aligned(const tensor::Tensor& x, int64_t bytes) {
  if (x.is_null()) return true;
  const int64_t pitch = x.rank() > 1 ? x.stride(0) * tensor::dtype_bytes(x.dtype()) : 0;
  return reinterpret_cast<uintptr_t>(x.data()) % static_cast<uintptr_t>(bytes) == 0 &&
         pitch % bytes == 0;
}
#endif
}  // namespace fathom::cuda
