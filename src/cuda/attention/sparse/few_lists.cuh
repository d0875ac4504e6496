#pragma once
// What a block of few_lists.cu does with the rows of a list that are its own, 128 at most: scores of all four tiles,
// one softmax that goes through the tiles in order, then the values of all. So the bits are those of a block of
// mla_absorbed.cu, which takes a tile after another, and seven barriers do for what takes twelve there.
// Internal to cuda/attention/sparse/.

#include "cuda/attention/absorbed_f8.cuh"
#include "cuda/attention/absorbed_tile.cuh"

namespace fathom::cuda::absorbed {

inline constexpr int kListTiles = kSplitRows / kTileRows;

// Shared memory of a block. Its weighted values lie over the tiles when those are done with.
struct ListLayout {
  static constexpr int kRows = 16, kScoreStride = 40, kStages = kListTiles;
  static constexpr int kSourceRowBytes = kF8RowBytes, kStageRowBytes = kF8RowBytes;
  static constexpr int kStageBytes = kTileRows * kF8RowBytes;
  static constexpr int kTileScores = 4 * kRows * kScoreStride;

  static constexpr int kScores = kListTiles * kStageBytes;
  static constexpr int kScoreBytes = kListTiles * kTileScores * 4;
  static constexpr int kQuery = kScores + kScoreBytes;
  static constexpr int kWeights = kQuery + kRows * kRowBytes;
  static constexpr int kWeightScales = kWeights + kListTiles * kRows * kWeightStride * 2;
  static constexpr int kKvRows = kWeightScales + kListTiles * kWeightScaleBytes;
  static constexpr int kStats = kKvRows + kSplitRows * 4;
  static constexpr int kFactors = kStats + kRows * 8;
  static constexpr int kBarrier = kFactors + kListTiles * kRows * 4;
  static constexpr int kBytes = kBarrier + 8;
  static_assert(kRows * kLatent * 4 <= kScores && kScores % 16 == 0 && kQuery % 16 == 0 &&
                kWeightScales % 16 == 0 && kBarrier % 8 == 0);
};

// Scores of the tiles to weights, and the factors of what was summed before each of them. A thread has two columns of
// a query row in each tile.
struct ListSoftmax {
  using Layout = ListLayout;
  static constexpr int kRowThreads = kThreads / Layout::kRows;
  static_assert(kTileRows == 2 * kRowThreads);

  // Returns maximum and sum of the thread's row.
  __device__ __forceinline__ static float2 run(char* shared, int num_rows, float scale) {
    const auto* const scores = reinterpret_cast<const float*>(shared + Layout::kScores);
    auto* const weights = reinterpret_cast<Bf16*>(shared + Layout::kWeights);
    auto* const factors = reinterpret_cast<float*>(shared + Layout::kFactors);
    const int row = static_cast<int>(threadIdx.x) / kRowThreads;
    const int first = static_cast<int>(threadIdx.x) % kRowThreads * 2;
    float x[kListTiles][2], tile_max[kListTiles];
#pragma unroll
    for (int tile = 0; tile < kListTiles; ++tile) {
      const float* const from =
          scores + tile * Layout::kTileScores + row * Layout::kScoreStride + first;
      float2 parts[4];
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter)
        parts[quarter] =
            *reinterpret_cast<const float2*>(from + quarter * Layout::kRows * Layout::kScoreStride);
      x[tile][0] = ((parts[0].x + parts[1].x) + (parts[2].x + parts[3].x)) * scale;
      x[tile][1] = ((parts[0].y + parts[1].y) + (parts[2].y + parts[3].y)) * scale;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (tile * kTileRows + first + i >= num_rows) x[tile][i] = minus_infinity();
      tile_max[tile] = fmaxf(fmaxf(minus_infinity(), x[tile][0]), x[tile][1]);
    }
#pragma unroll
    for (int lanes = 1; lanes < kRowThreads; lanes *= 2) {
#pragma unroll
      for (float& of_tile : tile_max)
        of_tile = fmaxf(of_tile, __shfl_xor_sync(0xffffffffu, of_tile, lanes));
    }
    float max = minus_infinity(), sum = 0.0f;
#pragma unroll
    for (int tile = 0; tile < kListTiles; ++tile) {
      if (tile * kTileRows >= num_rows) break;
      const float new_max = fmaxf(max, tile_max[tile]), from = finite_max(new_max);
      const float factor = exp2_fast(max - from);
      max = new_max;
      if (first == 0) factors[tile * Layout::kRows + row] = factor;
      const uint32_t pair =
          floats_to_bf16x2(exp2_fast(x[tile][0] - from), exp2_fast(x[tile][1] - from));
      *reinterpret_cast<uint32_t*>(weights + (tile * Layout::kRows + row) * kWeightStride + first) =
          pair;
      sum = __fmaf_rn(sum, factor, bf16x2_low(pair) + bf16x2_high(pair));
    }
#pragma unroll
    for (int lanes = 1; lanes < kRowThreads; lanes *= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    return {max, sum};
  }
};

// The copies of two tiles of the block's rows, whose numbers are in shared memory, a group for each.
__device__ __forceinline__ void begin_tiles(const AbsorbedParams& p, int first, int num_rows,
                                            char* shared) {
#pragma unroll
  for (int tile = first; tile < first + 2; ++tile) {
    if (tile * kTileRows < num_rows) load_tile<ListLayout>(p, shared, tile);
    commit_copies();
  }
}

// Weighted values, maximum and sum of each query row, in shared memory. The queries are under way, a group of copies.
// kIsFull: there are kSplitRows rows.
template <bool kIsFull>
__device__ __forceinline__ void attend_list(const AbsorbedParams& p, int num_rows, char* shared) {
  using Layout = ListLayout;
  auto* const scores = reinterpret_cast<float*>(shared + Layout::kScores);
  auto* const stats = reinterpret_cast<float2*>(shared + Layout::kStats);
  const int thread = static_cast<int>(threadIdx.x);
  const int quarter = thread / 64, first_key = thread / 32 % 2 * 16;  // a warp's scores
  if (!kIsFull && num_rows <= 0) {
    if (thread < Layout::kRows) stats[thread] = {minus_infinity(), 0.0f};
    wait_copies<0>();
    return;
  }
  F8Queries queries;
  begin_tiles(p, 0, num_rows, shared);
  wait_copies<2>();
  __syncthreads();
  queries.init(shared + Layout::kQuery, quarter);  // while rows come
  begin_tiles(p, 2, num_rows, shared);
#pragma unroll
  for (int tile = 0; tile < kListTiles; tile += 2) {
    tile == 0 ? wait_copies<kListTiles - 2>() : wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int i = tile; i < tile + 2; ++i)
      if (kIsFull || i * kTileRows < num_rows)
        score_f8_tile<Layout, 1>(queries, shared + i * Layout::kStageBytes,
                                 scores + i * Layout::kTileScores, quarter, first_key);
  }
  const int mine = thread / (2 * kTileRows);
  if (kIsFull || mine * kTileRows < num_rows)
    put_weight_scales(shared + mine * Layout::kStageBytes, num_rows - mine * kTileRows,
                      shared + Layout::kWeightScales + mine * kWeightScaleBytes,
                      thread % (2 * kTileRows));
  __syncthreads();
  const float2 of_row = ListSoftmax::run(shared, num_rows, p.scale);
  if (thread % ListSoftmax::kRowThreads == 0) stats[thread / ListSoftmax::kRowThreads] = of_row;
  __syncthreads();
  float values[1][8][4] = {};
#pragma unroll
  for (int tile = 0; tile < kListTiles; ++tile) {
    if (!kIsFull && tile * kTileRows >= num_rows) break;
    add_f8_values(shared + tile * Layout::kStageBytes,
                  shared + Layout::kWeightScales + tile * kWeightScaleBytes,
                  reinterpret_cast<const Bf16*>(shared + Layout::kWeights) +
                      tile * Layout::kRows * kWeightStride,
                  reinterpret_cast<const float*>(shared + Layout::kFactors) + tile * Layout::kRows,
                  values);
  }
  end_f8_values(values);
  __syncthreads();
  store_values<1, true>(values, reinterpret_cast<float*>(shared));
}

}  // namespace fathom::cuda::absorbed
