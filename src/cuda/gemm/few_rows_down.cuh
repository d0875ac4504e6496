#pragma once
// Down of few_rows.cu: what the warpgroups do with a task.
//
//   multiply_down<16>(p, shared, ring, task);     // up to 16 rows
//
// Internal to few_rows.cu.

#include "cuda/gemm/few_rows.cuh"
#include "cuda/gemm/few_rows_store.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace fathom::cuda::few_rows {

// Sums of 128 channels are scaled and added in float32, as in product_kernel.cuh.
template <int kTokens>
__device__ __forceinline__ void multiply_down(const Params& p, Shared& shared, Ring& ring,
                                              const DownTask& task) {
  constexpr int kSums = kTokens / 2, kMine = kSums / 2;  // of a thread; its tokens
  constexpr uint32_t kNextA = kOutputs * kChannels / 16, kNextB = kDownRows * kChannels / 16;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float sums[kSteps][kSums];
  const int before = (ring.stage + Shared::kStages - 1) % Shared::kStages;
  const auto& of = shared.stages[task.is_first ? ring.stage : before];
  const uint32_t a = descriptor_word(shared_address(of.weights[warp / 4 * kHalfRows]));
  const uint32_t b = descriptor_word(shared_address((*ring).rows));
  mma_begin(sums[0]);
  mma_begin(sums[1]);
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      mma(sums[k], descriptor(a + k * kNextA + i * kStepOfK),
          descriptor(b + k * kNextB + i * kStepOfK), i > 0, tensor::F8E4M3{});
  mma_commit();
  float scales[kSteps], x[kSteps][kMine];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) scales[k] = shared.scales[ring.stage][k];
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int row = i / 2 * 8 + lane % 4 * 2 + i % 2;
    const float2 both = *reinterpret_cast<const float2*>(&shared.row_scales[ring.stage][row * 2]);
    x[0][i] = both.x, x[1][i] = both.y;
  }
  mma_wait<0>(sums[0]);
  mma_wait<0>(sums[1]);
  __syncwarp();
  if (lane == 0 && task.is_last) {
    if (!task.is_first) barrier_arrive(shared_address(&shared.empty[before]));
    barrier_arrive(ring.empty());
  }
  float totals[kSums] = {};
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int i = 0; i < kSums; ++i) totals[i] += sums[k][i] * (x[k][i / 4 * 2 + i % 2] * scales[k]);
  tensor::Bf16* const y =
      p.y + int64_t{task.row} * p.hidden_size + task.column * kOutputs + warp * 16;
#pragma unroll
  for (int i = 0; i < kSums; i += 4)
    store_columns(y + int64_t{i * 2} * p.hidden_size, p.hidden_size, task.num_rows - i * 2,
                  {totals[i], totals[i + 1], totals[i + 2], totals[i + 3]});
}

}  // namespace fathom::cuda::few_rows
