#pragma once
// What a block has of the gate's logits of many tokens: stages of rows of the weight and of tokens in shared memory,
// filled by asynchronous copies, and a warp's 32 x 32 products of them, in the order of fragments.cuh. Chunks of 16
// bytes are swizzled, so that eight lanes, which read four chunks of two rows, meet all banks.
//
//   copy_rows<kThreads>(stage.x, first_token, x_stride, num_tokens, channel);  commit_copies();  ...
//   multiply_step(stage, half, first_row, first_token, sums);
//   for_each_sum(sums, [&](int row, int token, float sum) { ... });
//
// Internal to gate/.

#include "cuda/elementwise/vector.cuh"
#include "cuda/experts/gate/fragments.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

inline constexpr int kBlockTokens = 64, kWarpTile = 32;
inline constexpr int kStageChannels = 64, kChunks = kStageChannels / kVector;
inline constexpr int kRowTiles = kWarpTile / 16, kTokenTiles = kWarpTile / 8;

template <int kExperts>
struct LogitsStage {
  uint4 weight[kExperts][kChunks];
  uint4 x[kBlockTokens][kChunks];
};

// Where a row's chunk lies.
__device__ __forceinline__ int swizzled(int row, int chunk) { return chunk ^ (row % 2 * 4); }

template <int kThreads, int kRows>
__device__ __forceinline__ void copy_rows(uint4 (&to)[kRows][kChunks], const Bf16* from, int stride,
                                          int num_rows, int channel) {
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = at / kChunks, chunk = at % kChunks;
    const bool valid = row < num_rows;
    copy_async_16(shared_address(&to[row][swizzled(row, chunk)]),
                  from + (valid ? row * stride : 0) + channel + chunk * kVector, valid);
  }
}

// The warp's 32 x 32 products of one step of 32 channels.
template <class Stage>
__device__ __forceinline__ void multiply_step(const Stage& stage, int half, int first_row,
                                              int first_token,
                                              float (&d)[kRowTiles][kTokenTiles][4]) {
  const int lane = threadIdx.x % 32, chunk = half * 4 + lane % 4;
  uint4 x[kTokenTiles];
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {
    const int token = first_token + t * 8 + lane / 4;
    x[t] = stage.x[token][swizzled(token, chunk)];
  }
  uint4 low[kRowTiles], high[kRowTiles];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    const int row = first_row + r * 16 + lane / 4;
    low[r] = stage.weight[row][swizzled(row, chunk)];
    high[r] = stage.weight[row + 8][swizzled(row, chunk)];
  }
  // Products into one sum wait for each other, so all sums get their first before any gets its second.
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) multiply_first(d[r][t], low[r], high[r], x[t]);
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) multiply_second(d[r][t], low[r], high[r], x[t]);
}

// use(row, token, sum): of the warp's 32 rows and 32 tokens.
template <class Use>
__device__ __forceinline__ void for_each_sum(const float (&sums)[kRowTiles][kTokenTiles][4],
                                             Use use) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        use(r * 16 + i / 2 * 8 + lane / 4, t * 8 + lane % 4 * 2 + i % 2, sums[r][t][i]);
}

}  // namespace fathom::cuda
