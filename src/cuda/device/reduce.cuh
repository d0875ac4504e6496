#pragma once
// Sums and maxima over lanes and blocks, always in the same order.
//
//   float sum = block_sum<256>(value, shared);      // shared: float[256 / 32]; every thread gets the sum
//
// Every thread of the warp or block calls them.

#include <cstdint>

namespace fathom::cuda {

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(0xffffffffu, v, lanes);
  return v;
}

// fmaxf: a NaN does not count.
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lanes));
  return v;
}

// Of this lane and those above it.
__device__ __forceinline__ uint32_t sum_from_lane(uint32_t v, uint32_t lane) {
#pragma unroll
  for (uint32_t lanes = 1; lanes < 32; lanes *= 2) {
    const uint32_t other = __shfl_down_sync(0xffffffffu, v, lanes);
    if (lane + lanes < 32) v += other;
  }
  return v;
}

template <int kThreads>
__device__ __forceinline__ float block_sum(float v, float* shared) {
  v = warp_sum(v);
  __syncthreads();  // a reduction before may still read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += shared[warp];
  return sum;
}

template <int kThreads>
__device__ __forceinline__ float block_max(float v, float* shared) {
  v = warp_max(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  float most = shared[0];
#pragma unroll
  for (int warp = 1; warp < kThreads / 32; ++warp) most = fmaxf(most, shared[warp]);
  return most;
}

}  // namespace fathom::cuda
