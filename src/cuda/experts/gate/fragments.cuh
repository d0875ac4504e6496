#pragma once

#include "cuda/mma/warp.cuh"
// What both kernels of the gate's logits feed the tensor cores, so that their sums have the same bits. Of a step of
// 32 channels lane l has channels 8 * (l % 4) to 8 * (l % 4) + 7 of row l / 4: 16 bytes of memory as they lie there.
//
//   float d[4] = {};                 // experts l / 4 and l / 4 + 8; tokens 2 * (l % 4) and the next one
//   multiply(d, weight, weight_8_rows_on, x);

namespace fathom::cuda {

// The first and the second 16 channels.
__device__ __forceinline__ void multiply_first(float (&d)[4], uint4 low, uint4 high, uint4 x) {
  mma_bf16(d, {low.x, high.x, low.y, high.y}, {x.x, x.y});
}
__device__ __forceinline__ void multiply_second(float (&d)[4], uint4 low, uint4 high, uint4 x) {
  mma_bf16(d, {low.z, high.z, low.w, high.w}, {x.z, x.w});
}
__device__ __forceinline__ void multiply(float (&d)[4], uint4 low, uint4 high, uint4 x) {
  multiply_first(d, low, high, x);
  multiply_second(d, low, high, x);
}

}  // namespace fathom::cuda
