#pragma once
// Products of up to 8 rows with FP8 weights that lie in shared memory, 64 outputs and 128 channels a step, by a
// warpgroup: what kernels share whose blocks have all of their weights before the rows come.
//
//   multiply_held({.weights = tiles, .rows = rows, .full = barriers, .row_scales = scales}, 0, 3, w_scale, part_sum);
//
// Rows lie as the copy engine would leave them (gemm/tensor_map.h). Those behind the last token need not be there:
// nobody reads their sums.

#include "cuda/device/convert.cuh"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/barrier.cuh"

namespace fathom::cuda {

inline constexpr int kHeldRows = 64, kHeldColumns = 8;
inline constexpr int kHeldStepBytes = kHeldRows * kScaleBlock;     // of weights
inline constexpr int kHeldRowsBytes = kHeldColumns * kScaleBlock;  // of rows

struct HeldSteps {
  uint32_t weights, rows;   // shared memory, a step behind the other
  uint32_t full;            // a barrier for each step's weights, 8 bytes apart
  const float* row_scales;  // [step, 8], in shared memory
};

// Adds the steps [first, end), kSteps at most, each scaled, in rising order: what a lane has of 64 outputs of eight
// tokens (mma/warpgroup.cuh). w_scale: from step `first` on.
template <int kSteps>
__device__ __forceinline__ void multiply_held(const HeldSteps& at, int first, int end,
                                              const float (&w_scale)[kSteps],
                                              float (&part_sum)[4]) {
  float sums[kSteps][4];
#pragma unroll 1
  for (int step = first; step < end; ++step) barrier_wait(at.full + step * 8, 0);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) mma_begin(sums[k]);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const int step = min(first + k, end - 1);  // of fewer steps the last one again, not added
    const uint32_t a = descriptor_word(at.weights + step * kHeldStepBytes);
    const uint32_t x = descriptor_word(at.rows + step * kHeldRowsBytes);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      mma(sums[k], descriptor(a + i * kStepOfK), descriptor(x + i * kStepOfK), i > 0, F8E4M3{});
  }
  mma_commit();
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

}  // namespace fathom::cuda
