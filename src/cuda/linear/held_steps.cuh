#pragma once
// Products of up to 8 rows with weights that lie in shared memory, 64 outputs and 128 bytes of a row a step, by a
// warpgroup: what kernels share whose blocks have all of their weights before the rows come.
//
//   multiply_held({.weights = tiles, .rows = rows, .full = barriers, .row_scales = scales}, 0, 3, w_scale, part_sum);
//   multiply_held<3>({.weights = tiles, .rows = rows, .full = barriers}, 0, 3, part_sum);      // bf16, no scales
//
// Rows lie as the copy engine would leave them (gemm/tensor_map.h). Those behind the last token need not be there:
// nobody reads their sums.

#include "cuda/device/convert.cuh"
#include "cuda/gemm/stored.h"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/barrier.cuh"

namespace fathom::cuda {

inline constexpr int kHeldRows = 64, kHeldColumns = 8;
inline constexpr int kHeldStepBytes = kHeldRows * kLineBytes;     // of weights
inline constexpr int kHeldRowsBytes = kHeldColumns * kLineBytes;  // of rows

struct HeldSteps {
  uint32_t weights, rows;   // shared memory, a step behind the other
  uint32_t full;            // a barrier for each step's weights, 8 bytes apart
  const float* row_scales;  // [step, 8], in shared memory
};

// The products of the steps [first, end), kSteps at most and each by itself, under way: W is what rows and weights are
// of. Of fewer steps the last one comes again.
template <class W, int kSteps>
__device__ __forceinline__ void begin_held(const HeldSteps& at, int first, int end,
                                           float (&sums)[kSteps][4]) {
#pragma unroll 1
  for (int step = first; step < end; ++step) barrier_wait(at.full + step * 8, 0);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) mma_begin(sums[k]);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const int step = min(first + k, end - 1);
    const uint32_t a = descriptor_word(at.weights + step * kHeldStepBytes);
    const uint32_t x = descriptor_word(at.rows + step * kHeldRowsBytes);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      mma(sums[k], descriptor(a + i * kStepOfK), descriptor(x + i * kStepOfK), i > 0, W{});
  }
  mma_commit();
}

// Adds the steps [first, end), kSteps at most, each scaled, in rising order: what a lane has of 64 outputs of eight
// tokens (mma/warpgroup.cuh). w_scale: from step `first` on.
template <int kSteps>
__device__ __forceinline__ void multiply_held(const HeldSteps& at, int first, int end,
                                              const float (&w_scale)[kSteps],
                                              float (&part_sum)[4]) {
  float sums[kSteps][4];
  begin_held<F8E4M3>(at, first, end, sums);
  const float* const row_scales = at.row_scales + static_cast<int>(threadIdx.x) % 4 * 2;
  float2 row_scale[kSteps];
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    row_scale[k] =
        *reinterpret_cast<const float2*>(row_scales + min(first + k, end - 1) * kHeldColumns);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) mma_wait<0>(sums[k]);
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float scale = __fmul_rn(i % 2 == 0 ? row_scale[k].x : row_scale[k].y, w_scale[k]);
      const float sum = __fmaf_rn(sums[k][i], scale, part_sum[i]);
      part_sum[i] = first + k < end ? sum : part_sum[i];
    }
}

// The same of bf16, which has no scales.
template <int kSteps>
__device__ __forceinline__ void multiply_held(const HeldSteps& at, int first, int end,
                                              float (&part_sum)[4]) {
  float sums[kSteps][4];
  begin_held<Bf16>(at, first, end, sums);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) mma_wait<0>(sums[k]);
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      part_sum[i] = first + k < end ? __fadd_rn(part_sum[i], sums[k][i]) : part_sum[i];
}

}  // namespace fathom::cuda
