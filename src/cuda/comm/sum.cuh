#pragma once
// Sums of packets in the order of ranks: the same bits on every rank, whoever adds.

#include <cstdint>

#include "cuda/device/convert.cuh"

namespace fathom::cuda {

template <class T>
struct PacketSum;

template <>
struct PacketSum<float> {
  float at[4] = {};
  __device__ __forceinline__ void set(uint4 p) {
    at[0] = __uint_as_float(p.x), at[1] = __uint_as_float(p.y);
    at[2] = __uint_as_float(p.z), at[3] = __uint_as_float(p.w);
  }
  __device__ __forceinline__ void add(uint4 p) {
    at[0] += __uint_as_float(p.x), at[1] += __uint_as_float(p.y);
    at[2] += __uint_as_float(p.z), at[3] += __uint_as_float(p.w);
  }
  __device__ __forceinline__ uint4 packet() const {
    return make_uint4(__float_as_uint(at[0]), __float_as_uint(at[1]), __float_as_uint(at[2]),
                      __float_as_uint(at[3]));
  }
};

// Added in f32, rounded once.
template <>
struct PacketSum<Bf16> {
  float at[8] = {};
  __device__ __forceinline__ void set(uint4 p) {
    const uint32_t words[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      at[2 * i] = bf16x2_low(words[i]), at[2 * i + 1] = bf16x2_high(words[i]);
  }
  __device__ __forceinline__ void add(uint4 p) {
    const uint32_t words[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      at[2 * i] += bf16x2_low(words[i]), at[2 * i + 1] += bf16x2_high(words[i]);
  }
  __device__ __forceinline__ uint4 packet() const {
    return make_uint4(floats_to_bf16x2(at[0], at[1]), floats_to_bf16x2(at[2], at[3]),
                      floats_to_bf16x2(at[4], at[5]), floats_to_bf16x2(at[6], at[7]));
  }
};

}  // namespace fathom::cuda
