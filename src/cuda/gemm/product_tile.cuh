#pragma once
// What the parts of the kernel of product.h share: its parameters, tiles and the ring of stages.
//
//   using C = Tiling<F8E4M3, 128, 128>;  Ring<C> ring(shared);  ... ring.full() ...;  ring.advance();
//
// Internal to product_kernel.cuh.

#include "cuda/gemm/ptx.cuh"
#include "cuda/gemm/wgmma.cuh"

namespace fathom::cuda {

inline constexpr int kClusterBlocks = 2, kWarpgroup = 128, kMultiplyingWarps = 8;
inline constexpr int kTiledThreads = 3 * kWarpgroup;
// Of a warp: 16 rows of 128 bf16 on their way out. Rows are 16 bytes apart more than they have, so that neither the
// way in nor the way out meets a bank twice.
inline constexpr int kStagingPitch = 256 + 16, kStagingBytes = 16 * kStagingPitch;

struct TiledParams {
  CUtensorMap a, b;
  const float* a_scale;
  const float* b_scale;
  void* out;
  int64_t out_stride;
  int rows, n, num_steps;  // of a; columns of out; of k
  int m_tiles, raster;     // without groups; tiles of rows that are taken together
  int group_rows;          // of b
  int block_columns;       // of out, of a block's tile
  int pairs;               // of tiles, beside each other
  int half_distance;       // rows of b between the halves of a tile
  bool out_is_f32, accumulate, is_gated;
  float* out_scale;  // f8 and gated
  const int2* tiles;
  const int* num_tiles;
  const int* out_rows;
};

template <class ElementT, int kBlockMT, int kBlockNT>
struct Tiling {
  using Element = ElementT;
  static constexpr bool kIsF8 = sizeof(Element) == 1;
  static constexpr int kBlockM = kBlockMT, kBlockN = kBlockNT;
  // A warpgroup multiplies 64 rows and 128 columns of f8 at a time: it holds the sums of one block of scales.
  static constexpr int kWavesM = kBlockM / 128, kWavesN = kIsF8 ? kBlockN / 128 : 1;
  static constexpr int kWaves = kWavesM * kWavesN;
  static constexpr int kRowBytes = 128, kBlockK = kRowBytes / static_cast<int>(sizeof(Element));
  static constexpr int kABytes = kBlockM * kRowBytes, kBBytes = kBlockN * kRowBytes;
  static constexpr int kStageBytes = kABytes + kBBytes, kStages = (192 << 10) / kStageBytes;
  static constexpr int kStagingAt = kStages * (kStageBytes + 2 * 8);  // behind the barriers
  static constexpr int kSharedBytes = kStagingAt + kMultiplyingWarps * kStagingBytes;
  static constexpr int kSums = kBlockN / kWavesN / 2;  // of a thread and a wave
  static_assert(kWaves == 1 || kIsF8);
};

// A block's tile of out; the other block of its cluster has the next one of the same rows.
struct Tile {
  int group, row, num_rows, column;
};

template <class C>
__device__ __forceinline__ Tile tile_at(const TiledParams& p, int index, int rank) {
  if (p.tiles != nullptr) {
    const int m = index / p.pairs;
    const int2 tile = p.tiles[m];
    return {.group = tile.x,
            .row = m * C::kBlockM,
            .num_rows = tile.y,
            .column = ((index - m * p.pairs) * kClusterBlocks + rank) * p.block_columns};
  }
  const int stripe = index / (p.raster * p.pairs), first = stripe * p.raster;
  const int height = min(p.raster, p.m_tiles - first), local = index - stripe * p.raster * p.pairs;
  const int row = (first + local % height) * C::kBlockM;
  return {.group = 0,
          .row = row,
          .num_rows = p.rows - row,
          .column = (local / height * kClusterBlocks + rank) * p.block_columns};
}

__device__ __forceinline__ int num_pairs(const TiledParams& p) {
  return p.pairs * (p.tiles != nullptr ? *p.num_tiles : p.m_tiles);
}

// A role's place in the ring of stages.
template <class C>
struct Ring {
  uint32_t base;
  int stage = 0;
  uint32_t phase = 0;

  __device__ explicit Ring(uint32_t shared) : base(shared) {}
  __device__ uint32_t a() const { return base + stage * C::kStageBytes; }
  __device__ uint32_t b() const { return a() + C::kABytes; }
  __device__ uint32_t full() const { return base + C::kStages * C::kStageBytes + stage * 8; }
  __device__ uint32_t empty() const { return full() + C::kStages * 8; }
  __device__ void advance() {
    if (++stage < C::kStages) return;
    stage = 0;
    phase ^= 1;
  }
};

template <class C>
__device__ __forceinline__ void init_barriers(uint32_t shared) {
  Ring<C> ring(shared);
  for (int i = 0; i < C::kStages; ++i, ring.advance()) {
    barrier_init(ring.full(), 1);
    barrier_init(ring.empty(), kMultiplyingWarps * kClusterBlocks);
  }
  barriers_are_ready();
}

}  // namespace fathom::cuda
