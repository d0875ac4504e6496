#pragma once
// Gate and up of few_rows.cu: what the warpgroups do with a part of a task.
//
//   multiply_part<16>(p, shared, ring, part);     // up to 16 rows
//
// Internal to few_rows.cu.

#include "cuda/gemm/activation.cuh"
#include "cuda/gemm/few_rows.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace fathom::cuda::few_rows {

// What two warpgroups multiply a part of up to kTokens rows with.
template <int kTokens>
struct GateUp {
  static constexpr int kSums = kTokens / 2, kMine = kSums / 2;  // of a thread and half; its tokens
  static constexpr int kMostSums = kHalves * kFewTileRows / 2;

  const Params& p;
  Shared& shared;
  const Part& part;
  int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float totals[kHalves][kSums] = {};

  __device__ __forceinline__ GateUp(const Params& params, Shared& memory, const Part& mine)
      : p(params), shared(memory), part(mine) {}

  __device__ __forceinline__ int row_of(int mine) const {
    return mine / 2 * 8 + lane % 4 * 2 + mine % 2;
  }

  // Sums of 128 channels are scaled and added in float32, as in product_kernel.cuh.
  __device__ __forceinline__ void multiply(Ring& ring) {
    for (int k = part.begin; k < part.end; ++k, ring.advance()) {
      float sums[kHalves][kSums];
      barrier_wait(ring.full(), ring.parity);
      show_to_engines();  // what threads copied
      multiply_stage(ring, sums);
      const float gate = shared.scales[ring.stage][0], up = shared.scales[ring.stage][1];
      float x[kMine];
#pragma unroll
      for (int i = 0; i < kMine; ++i) x[i] = shared.row_scales[ring.stage][row_of(i)];
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.empty());
#pragma unroll
      for (int m = 0; m < kHalves; ++m)
#pragma unroll
        for (int i = 0; i < kSums; ++i)
          totals[m][i] += sums[m][i] * (x[i / 4 * 2 + i % 2] * (i % 4 < 2 ? gate : up));
    }
  }
  __device__ __forceinline__ void multiply_stage(const Ring& ring,
                                                 float (&sums)[kHalves][kSums]) const {
    constexpr uint32_t kNext = kHalfRows * kChannels / 16;
    const uint32_t a =
        descriptor_word(shared_address((*ring).weights[warp / 4 * kHalves * kHalfRows]));
    const uint32_t b = descriptor_word(shared_address((*ring).rows));
#pragma unroll
    for (int m = 0; m < kHalves; ++m) mma_begin(sums[m]);
#pragma unroll
    for (int m = 0; m < kHalves; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        mma(sums[m], descriptor(a + m * kNext + i * kStepOfK), descriptor(b + i * kStepOfK), i > 0,
            tensor::F8E4M3{});
    mma_commit();
#pragma unroll
    for (int m = 0; m < kHalves; ++m) mma_wait<0>(sums[m]);
  }

  __device__ __forceinline__ float* carried_of(unsigned block) const {
    return p.carried + int64_t{block} * kMostSums * kMultiplyingThreads + threadIdx.x;
  }
  // To the next block.
  __device__ __forceinline__ void leave() const {
    float* const to = carried_of(blockIdx.x);
#pragma unroll
    for (int m = 0; m < kHalves; ++m)
#pragma unroll
      for (int i = 0; i < kSums; ++i)
        __stcg(to + (m * kSums + i) * kMultiplyingThreads, totals[m][i]);
    __threadfence();
    named_barrier_sync(kMultiplyBarrier, kMultiplyingThreads);
    if (threadIdx.x == 0) atomicExch(p.tickets + blockIdx.x, 1u);
  }
  // From the block before.
  __device__ __forceinline__ void find() {
    uint32_t* const ticket = p.tickets + blockIdx.x - 1;
    if (threadIdx.x == 0) {
      while (atomicAdd(ticket, 0u) == 0) {
      }
      __threadfence();
      *ticket = 0;
    }
    named_barrier_sync(kMultiplyBarrier, kMultiplyingThreads);
    const float* const from = carried_of(blockIdx.x - 1);
#pragma unroll
    for (int m = 0; m < kHalves; ++m)
#pragma unroll
      for (int i = 0; i < kSums; ++i)
        totals[m][i] = __ldcg(from + (m * kSums + i) * kMultiplyingThreads);
  }

  // silu(gate) * up, quantised: a row's 128 values are all warps'.
  __device__ __forceinline__ void store() {
    float h[kHalves][kMine];
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int at = i / 2 * 4 + i % 2;
      float most = 0;
#pragma unroll
      for (int m = 0; m < kHalves; ++m) {
        h[m][i] = silu_mul(totals[m][at], totals[m][at + 2]);
        most = fmaxf(most, fabsf(h[m][i]));
      }
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
      if (lane < 4) shared.most[row_of(i)][warp] = most;
    }
    named_barrier_sync(kMultiplyBarrier, kMultiplyingThreads);
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int row = row_of(i);
      float most = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) most = fmaxf(most, shared.most[row][w]);
      const float scale = fp8_scale(most);
#pragma unroll
      for (int m = 0; m < kHalves; ++m) {
        const int column = ((warp / 4 * kHalves + m) * 4 + warp % 4) * kGateUpGroupRows + lane / 4;
        shared.h[row][column] = from_float<tensor::F8E4M3>(__fdiv_rn(h[m][i], scale)).bits;
      }
      if (warp == 0 && lane < 4 && row < part.tile.num_rows)
        p.h_scale[(int64_t{part.tile.row} + row) * p.columns + part.column] = scale;
    }
    named_barrier_sync(kMultiplyBarrier, kMultiplyingThreads);
    constexpr int kPieces = kTaskColumns / 16;
    for (int i = static_cast<int>(threadIdx.x); i < part.tile.num_rows * kPieces;
         i += kMultiplyingThreads) {
      const int row = i / kPieces, at = i % kPieces * 16;
      *reinterpret_cast<uint4*>(p.h + (int64_t{part.tile.row} + row) * p.inter +
                                part.column * kTaskColumns + at) =
          *reinterpret_cast<const uint4*>(&shared.h[row][at]);
    }
    __threadfence();
    named_barrier_sync(kMultiplyBarrier, kMultiplyingThreads);
    if (threadIdx.x == 0) atomicAdd(p.counters + part.tile_index, 1);
  }
};

template <int kTokens>
__device__ __forceinline__ void multiply_part(const Params& p, Shared& shared, Ring& ring,
                                              const Part& part) {
  GateUp<kTokens> of(p, shared, part);
  if (part.begin > 0) of.find();
  of.multiply(ring);
  part.end < p.steps ? of.leave() : of.store();
}

}  // namespace fathom::cuda::few_rows
