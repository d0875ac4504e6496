#pragma once
// Sums of packets in the tree of comm/tree_sum.h: the same bits on every rank, whoever adds, and those of the sums in
// host memory.

#include <cstdint>

#include "cuda/device/convert.cuh"

namespace fathom::cuda {

// A packet of elements T, added in f32 and rounded to T.
template <class T>
__device__ __forceinline__ uint4 add_packets(uint4 a, uint4 b);

template <>
__device__ __forceinline__ uint4 add_packets<float>(uint4 a, uint4 b) {
  const auto add = [](uint32_t x, uint32_t y) {
    return __float_as_uint(__uint_as_float(x) + __uint_as_float(y));
  };
  return make_uint4(add(a.x, b.x), add(a.y, b.y), add(a.z, b.z), add(a.w, b.w));
}

template <>
__device__ __forceinline__ uint4 add_packets<Bf16>(uint4 a, uint4 b) {
  const auto add = [](uint32_t x, uint32_t y) {
    return floats_to_bf16x2(bf16x2_low(x) + bf16x2_low(y), bf16x2_high(x) + bf16x2_high(y));
  };
  return make_uint4(add(a.x, b.x), add(a.y, b.y), add(a.z, b.z), add(a.w, b.w));
}

// The sum over `size` ranks, as a tree of pairs. Overwrites the packets. REQUIRES: size <= kRanks.
template <class T, int kRanks>
__device__ __forceinline__ uint4 sum_in_tree(uint4 (&packets)[kRanks], int size) {
#pragma unroll
  for (int half = 1; half < kRanks; half *= 2) {
#pragma unroll
    for (int r = 0; r + half < kRanks; r += 2 * half)
      if (r + half < size) packets[r] = add_packets<T>(packets[r], packets[r + half]);
  }
  return packets[0];
}

}  // namespace fathom::cuda
