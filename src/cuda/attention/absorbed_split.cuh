#pragma once
// What a block of a cluster (mla_absorbed.cu) does with its 128 cache rows, 32 at a time. Internal to cuda/attention/.

#include <type_traits>

#include "cuda/attention/absorbed_f8.cuh"
#include "cuda/attention/absorbed_tile.cuh"

namespace fathom::cuda::absorbed {

// Starts the copies of this block's rows of a chunk.
template <class Layout>
__device__ __forceinline__ void begin_split(const AbsorbedParams& p, const QueryGroup& group,
                                            int first_row, bool wants_queries, char* shared) {
  auto* const kv_rows = reinterpret_cast<int32_t*>(shared + Layout::kKvRows);
  const int num_rows = min(kSplitRows, group.end() - first_row);
  const int32_t kv_row = static_cast<int>(threadIdx.x) < num_rows
                             ? kv_row_at(p, group.seq, first_row + threadIdx.x)
                             : -1;
  if (wants_queries) load_queries<Layout>(p, group, shared, threadIdx.x);
  if (threadIdx.x < kSplitRows) kv_rows[threadIdx.x] = kv_row;
  __syncthreads();
#pragma unroll
  for (int tile = 0; tile < Layout::kStages; ++tile) {
    if (tile * kTileRows < num_rows) load_tile<Layout>(p, shared, tile);
    commit_copies();
  }
}

// One block's 128 rows: weighted values, maximum and sum of each query row, in shared memory.
template <int kMTiles, bool kIsF8>
__device__ __forceinline__ void attend_split(const AbsorbedParams& p, const QueryGroup& group,
                                             int first_row, char* shared) {
  using Layout = BlockLayout<kMTiles, kIsF8>;
  auto* const scores = reinterpret_cast<float*>(shared + Layout::kScores);
  auto* const weights = reinterpret_cast<Bf16*>(shared + Layout::kWeights);
  auto* const factors = reinterpret_cast<float*>(shared + Layout::kFactors);
  const int num_rows = min(kSplitRows, group.end() - first_row);
  const int num_tiles = (num_rows + kTileRows - 1) / kTileRows;
  const int quarter = threadIdx.x / 64, first_key = threadIdx.x / 32 % 2 * 16;  // a warp's scores
  constexpr bool kReadsF8 = Layout::kReadsF8;
  std::conditional_t<kReadsF8, F8Queries, Queries<kMTiles>> queries;
  RowSoftmax<kThreads / Layout::kRows, Layout> softmax(threadIdx.x);
  softmax.init(p, group);
  softmax.begin_split();
  float values[kMTiles][8][4] = {};
  for (int tile = 0; tile < num_tiles; ++tile) {
    if (tile == 0) {
      wait_copies<Layout::kStages - 1>();
    } else {
      wait_copies<Layout::kStages - 2>();
    }
    __syncthreads();  // the tile is there, and the one before it is done with
    const int next = tile - 1 + Layout::kStages;
    if (tile > 0) {
      if (next < num_tiles) load_tile<Layout>(p, shared, next);
      commit_copies();
    }
    char* keys = shared + tile % Layout::kStages * Layout::kStageBytes;
    if (tile == 0) queries.init(shared + Layout::kQuery, quarter);
    if constexpr (Layout::kConverts) {
      dequantise_tile(keys, shared + Layout::kTile);
      keys = shared + Layout::kTile;
      __syncthreads();
    }
    if constexpr (kReadsF8) {
      score_f8_tile<Layout, 1>(queries, keys, scores, quarter, first_key);
      if (threadIdx.x < 2 * kTileRows)
        put_weight_scales(keys, num_rows - tile * kTileRows, shared + Layout::kWeightScales,
                          threadIdx.x);
    } else {
      score_tile<kMTiles, Layout, 1>(queries, shared_address(keys), scores, quarter, first_key);
    }
    __syncthreads();
    const int tile_row = first_row + tile * kTileRows;
    softmax.step(group, p.scale, tile_row, scores, weights, factors);
    if (!kReadsF8 && tile_row + kTileRows > group.first_partial_row())
      clear_non_finite<kThreads>(keys, max(0, group.first_partial_row() - tile_row), threadIdx.x);
    __syncthreads();
    if constexpr (kReadsF8) {
      add_f8_values(keys, shared + Layout::kWeightScales, weights, factors, values);
    } else {
      add_values<kMTiles>(shared_address(keys), weights, factors, values);
    }
  }
  if constexpr (kReadsF8) end_f8_values(values);
  wait_copies<0>();
  __syncthreads();
  store_values<kMTiles, kReadsF8>(values, reinterpret_cast<float*>(shared));
  const float2 stats = softmax.stats();
  if (softmax.is_first()) reinterpret_cast<float2*>(shared + Layout::kStats)[softmax.row()] = stats;
}

}  // namespace fathom::cuda::absorbed
