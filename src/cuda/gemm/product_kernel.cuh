#pragma once
// The kernel of product.h. Bound by the tensor cores: 2 * rows * n * k operations.
//
// Persistent: clusters of two blocks walk over pairs of tiles that share their rows and are neighbours in n. A block
// has one warp that feeds a ring of stages in shared memory (its half of the rows' tile goes to both blocks) and
// two warpgroups that multiply, each 64 rows of every 128. Grid: all multiprocessors. Shared memory: 192 KB of stages,
// each kBlockM + kBlockN rows of 128 bytes: 64 bf16 or 128 e4m3 of k; 34 KB for rows on their way out.
// Order of sums: k rises, for f8 in blocks of 128 whose sums are scaled and added in float32. So the bits of a row
// depend on nothing but the row and the weight.

#include "cuda/device/pdl.cuh"
#include "cuda/gemm/product_store.cuh"
#include "cuda/gemm/product_tile.cuh"

namespace fathom::cuda {

// One thread. Its half of the rows goes to both blocks, so a stage must be empty in both.
template <class C>
__device__ __forceinline__ void feed(const TiledParams& p, uint32_t shared) {
  const int rank = static_cast<int>(cluster_rank()), pairs = num_pairs(p);
  constexpr int kHalf = C::kBlockM / kClusterBlocks;
  const int first = static_cast<int>(blockIdx.x) / kClusterBlocks;
  if (first >= pairs) return;
  Ring<C> ring(shared);
  Tile next = tile_at<C>(p, first, rank);
  for (int index = first; index < pairs;) {
    const Tile tile = next;
    index += static_cast<int>(gridDim.x) / kClusterBlocks;
    next = tile_at<C>(p, min(index, pairs - 1), rank);  // under way while this tile is fed
    const int a_row = tile.row + rank * kHalf, b_row = tile.group * p.group_rows + tile.column;
    for (int k = 0; k < p.num_steps; ++k, ring.advance()) {
      barrier_wait(ring.empty(), ring.phase ^ 1);
      barrier_expect(ring.full(), C::kStageBytes);
      load_tile_to(&p.a, ring.a() + rank * kHalf * C::kRowBytes, ring.full(), k * C::kBlockK, a_row,
                   0b11);
      load_tile(&p.b, ring.b(), ring.full(), k * C::kBlockK, b_row);
      load_tile(&p.b, ring.b() + C::kBBytes / 2, ring.full(), k * C::kBlockK,
                b_row + p.half_distance);
    }
  }
}

// This warp does not read the stage any more.
__device__ __forceinline__ void release(uint32_t empty) {
  const uint32_t lane = threadIdx.x % 32;
  if (lane < kClusterBlocks) barrier_arrive_at(empty, lane);
}

template <class C>
__device__ __forceinline__ void multiply_stage(const Ring<C>& ring, int rows_before,
                                               int columns_before, bool add,
                                               float (&sums)[C::kSums]) {
  const uint64_t a = tile_descriptor(ring.a() + rows_before * C::kRowBytes);
  const uint64_t b = tile_descriptor(ring.b() + columns_before * C::kRowBytes);
  mma_begin(sums);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    mma(sums, a + i * kStepOfK, b + i * kStepOfK, add || i > 0, typename C::Element{});
  mma_commit();
}

// A warpgroup without rows leaves the tensor cores to the other one.
template <class C>
__device__ __forceinline__ void skip_tile(const TiledParams& p, Ring<C>& ring) {
  for (int k = 0; k < p.num_steps; ++k, ring.advance()) {
    barrier_wait(ring.full(), ring.phase);
    release(ring.empty());
  }
}

// bf16: one sum over all of k; a stage's products run while the next stage's are started.
template <class C>
__device__ __forceinline__ void multiply(const TiledParams& p, Ring<C>& ring,
                                         float (&sums)[C::kSums]) {
  const int rows_before = (static_cast<int>(threadIdx.x) / kWarpgroup - 1) * 64;
  uint32_t used = 0;
  for (int k = 0; k < p.num_steps; ++k) {
    barrier_wait(ring.full(), ring.phase);
    multiply_stage(ring, rows_before, 0, k > 0, sums);
    mma_wait<1>(sums);
    if (k > 0) release(used);
    used = ring.empty();
    ring.advance();
  }
  mma_wait<0>(sums);
  release(used);
}

// What a thread needs to scale sums: the rows it has and where their scales lie.
template <class C>
struct Scales {
  int offsets[C::kWavesM][2];
  float a[C::kWavesM][2];
  const float* b_next[C::kWavesN];
  float b[C::kWavesN];
};

// Of a tile's first 128 of k, before they are needed.
template <class C>
__device__ __forceinline__ void begin_scales(const TiledParams& p, const Tile& tile,
                                             Scales<C>& scales) {
  const int first = tile.row + local_row(0);
#pragma unroll
  for (int w = 0; w < C::kWavesM; ++w) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      scales.offsets[w][h] = min(first + w * 128 + h * 8, p.rows - 1) * p.num_steps;
      scales.a[w][h] = p.a_scale[scales.offsets[w][h]];
    }
  }
  // Of b's rows: those of a gated product are the gate's n, then as many of up.
  const int n_blocks = (p.group_rows + 127) / 128, n_block = tile.column / 128;
#pragma unroll
  for (int w = 0; w < C::kWavesN; ++w) {
    const int of_group = min(n_block + w * ((p.half_distance + 127) / 128), n_blocks - 1);
    const int64_t block = static_cast<int64_t>(tile.group) * n_blocks + of_group;
    scales.b_next[w] = p.b_scale + block * p.num_steps;
    scales.b[w] = *scales.b_next[w];
  }
}

template <int kSums>
__device__ __forceinline__ void add_scaled(float (&totals)[kSums], const float (&sums)[kSums],
                                           float upper, float lower) {
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    totals[i] += sums[i] * upper;
    totals[i + 1] += sums[i + 1] * upper;
    totals[i + 2] += sums[i + 2] * lower;
    totals[i + 3] += sums[i + 3] * lower;
  }
}

// f8: the sums of 128 of k are scaled and added to the totals, while the other warpgroup multiplies.
template <class C>
__device__ __forceinline__ void multiply_scaled(const TiledParams& p, Ring<C>& ring,
                                                Scales<C>& scales,
                                                float (&totals)[C::kWaves][C::kSums]) {
  const int warpgroup = threadIdx.x / kWarpgroup - 1;
  float sums[C::kSums];
#pragma unroll
  for (int w = 0; w < C::kWaves; ++w) {
#pragma unroll
    for (int i = 0; i < C::kSums; ++i) totals[w][i] = 0;
  }
  for (int k = 0; k < p.num_steps; ++k) {
    const int next = min(k + 1, p.num_steps - 1);
    float next_b[C::kWavesN];
#pragma unroll
    for (int w = 0; w < C::kWavesN; ++w) next_b[w] = scales.b_next[w][next];
    barrier_wait(ring.full(), ring.phase);
#pragma unroll
    for (int w = 0; w < C::kWaves; ++w) {
      const int m = w / C::kWavesN, n = w % C::kWavesN;
      multiply_stage(ring, m * 128 + warpgroup * 64, n * 128, false, sums);
      const float upper = scales.a[m][0] * scales.b[n], lower = scales.a[m][1] * scales.b[n];
      if (n == C::kWavesN - 1) {
        scales.a[m][0] = p.a_scale[scales.offsets[m][0] + next];
        scales.a[m][1] = p.a_scale[scales.offsets[m][1] + next];
      }
      mma_wait<0>(sums);
      if (w == C::kWaves - 1) release(ring.empty());
      add_scaled(totals[w], sums, upper, lower);
    }
#pragma unroll
    for (int w = 0; w < C::kWavesN; ++w) scales.b[w] = next_b[w];
    ring.advance();
  }
}

template <class C>
__device__ __forceinline__ void store_tile(const TiledParams& p, const Tile& tile,
                                           const Places& places, uint32_t staging,
                                           const float (&totals)[C::kWaves][C::kSums]) {
  if constexpr (C::kWavesN == 2) {
    if (p.is_gated) return store_gated_f8(p, tile, totals[0], totals[1]);
    Tile right = tile;
    right.column += 128;
    store(p, tile, 0, places, staging, totals[0]);
    store(p, right, 0, places, staging, totals[1]);
  } else if (!C::kIsF8 && p.is_gated) {
    store_gated(p, tile, places, staging, totals[0]);
  } else {
#pragma unroll
    for (int w = 0; w < C::kWaves; ++w) store(p, tile, w, places, staging, totals[w]);
  }
}

// What the next tile needs from memory is asked for before this tile is stored.
template <class C>
__device__ __forceinline__ void work(const TiledParams& p, uint32_t shared) {
  const int rank = static_cast<int>(cluster_rank()), pairs = num_pairs(p);
  const int step = static_cast<int>(gridDim.x) / kClusterBlocks;
  int index = static_cast<int>(blockIdx.x) / kClusterBlocks;
  if (index >= pairs) return;
  Ring<C> ring(shared);
  const uint32_t staging = shared + C::kStagingAt + (threadIdx.x / 32 - 4) * kStagingBytes;
  float totals[C::kWaves][C::kSums];
  Scales<C> scales;
  Tile tile = tile_at<C>(p, index, rank);
  if constexpr (C::kIsF8) begin_scales(p, tile, scales);
  while (true) {
    index += step;
    const Tile next = tile_at<C>(p, min(index, pairs - 1), rank);
    const bool has_rows = first_row_of_warpgroup() < tile.num_rows;
    Places places{};
    if constexpr (C::kWavesM == 1) places = places_of(p, tile);
    if (!has_rows) {
      skip_tile(p, ring);
    } else if constexpr (C::kIsF8) {
      multiply_scaled(p, ring, scales, totals);
    } else {
      multiply(p, ring, totals[0]);
    }
    if constexpr (C::kIsF8) begin_scales(p, next, scales);
    if (has_rows) store_tile<C>(p, tile, places, staging, totals);
    if (index >= pairs) return;
    tile = next;
  }
}

template <class C>
__global__ void __launch_bounds__(kTiledThreads, 1)
    tiled_kernel(const __grid_constant__ TiledParams p) {
  extern __shared__ __align__(1024) uint8_t stages[];
  const uint32_t shared = shared_address(stages);
  if (threadIdx.x == 0) {
    prefetch_map(&p.a);
    prefetch_map(&p.b);
    init_barriers<C>(shared);
  }
  cluster_sync();
  let_next_start();
  wait_for_previous();
  if (threadIdx.x < kWarpgroup) {
    give_registers<24>();
    if (threadIdx.x == 0) feed<C>(p, shared);
  } else {
    take_registers<240>();
    work<C>(p, shared);
  }
  cluster_sync();  // the other block may still send to this one
}

}  // namespace fathom::cuda
