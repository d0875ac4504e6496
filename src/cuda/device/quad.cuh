#pragma once
// Between the four lanes that have neighbouring columns of a tensor-core product.
//
//   transpose_quad(words);      // 2 columns of 4 blocks of 8 each: now the lane has all 8 of one block

#include <cstdint>

namespace fathom::cuda {

// Between four lanes: v[j] of lane t becomes v[t] of lane j.
__device__ __forceinline__ void transpose_quad(uint32_t (&v)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  uint32_t x = __shfl_xor_sync(0xffffffffu, odd ? v[0] : v[1], 1);
  uint32_t y = __shfl_xor_sync(0xffffffffu, odd ? v[2] : v[3], 1);
  v[0] = odd ? x : v[0];
  v[1] = odd ? v[1] : x;
  v[2] = odd ? y : v[2];
  v[3] = odd ? v[3] : y;
  x = __shfl_xor_sync(0xffffffffu, high ? v[0] : v[2], 2);
  y = __shfl_xor_sync(0xffffffffu, high ? v[1] : v[3], 2);
  v[0] = high ? x : v[0];
  v[1] = high ? y : v[1];
  v[2] = high ? v[2] : x;
  v[3] = high ? v[3] : y;
}

}  // namespace fathom::cuda
