#pragma once
// What the parts of the kernel of product.h share: its parameters, tiles and the ring of stages.
//
//   using C = Tiling<F8E4M3, 128, 128>;  Ring<C> ring(shared);  ... ring.full() ...;  ring.advance();
//
// Internal to product_kernel.cuh.

#include "cuda/gemm/product.cuh"
#include "cuda/gemm/stored.h"
#include "cuda/gemm/tiles.h"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace fathom::cuda {

inline constexpr int kWarpgroup = 128, kMultiplyingWarps = 8;
inline constexpr int kTiledThreads = 3 * kWarpgroup;
// Threads that fetch the scales: the second and third warp, or all that feed.
inline constexpr int kScaleThreads = 64;
// A warp writes its output as boxes of 16 rows of 64 bf16, swizzled as TMA does.
inline constexpr int kBoxRows = 16, kBoxColumns = 64, kBoxBytes = kBoxRows * kBoxColumns * 2;
inline constexpr int kMostSharedBytes = 227 << 10;

// Tiles on their way to the roles of a cluster, which are at most kStages steps, so no more tiles, apart: no place is
// written again before all have read it.
inline constexpr int kQueueSlots = 8;

// Stages of pairs of 4 bits that are read ahead.
inline constexpr int kPairStages = 3;

// A second matrix for the same rows, from column `begin` on of all columns, or the matrix of the groups from
// `first_group` on.
struct SecondParams {
  CUtensorMap b, out_map;
  const float* b_scale;
  int rows, begin;
  int first_group;
  int group_rows, group_k;  // from group to group
  int half_distance;        // as TiledParams::half_distance
};

struct TiledParams {
  CUtensorMap a, b, out_map;  // b of pairs in bytes; out_map: of bf16 that is not added to
  SecondParams second;
  const float* a_scale;
  const float* b_scale;
  void* out;
  int64_t out_stride;
  int rows, n, num_steps;  // of a; columns of out; of k
  int m_tiles, raster;     // without groups; tiles of rows that are taken together
  int group_rows;          // of b
  int block_columns;       // of out, of a block's tile
  int pairs;               // of tiles, beside each other; gathered: tiles of columns
  // Of narrow tiles (Tiling::kHasNarrow): the first ones' index, how many clusters' they are, and their columns.
  int first_narrow, narrow, narrow_column;
  bool narrow_is_second;
  int half_distance;  // rows of b between the halves of a tile
  bool out_is_f32, accumulate;
  float* out_scale;  // quantised and gated
  // Pairs with zero points: f16[rows of b, 2 * groups], and the channels of a group.
  const uint16_t* zero_points;
  int groups, group_channels;
  // Gathered rows.
  const char* a_data;
  const int* a_rows;
  int64_t a_stride_bytes;
  int row_pieces;  // of 16 bytes
  const GroupTile* tiles;
  const int* num_tiles;
  int* taken;  // counts tiles that were handed out, but each cluster's first; null: none are
};

// kGathers: rows of a are looked up, and the halves of b are gate and up. b lies as Weight says (stored.h).
template <class WeightT, int kBlockMT, int kBlockNT, bool kGathersT = false>
struct Tiling {
  using Weight = WeightT;
  using Element = OperandOf<Weight>;
  using Sum = OperandSumOf<Weight>;
  static constexpr bool kGathers = kGathersT;
  // The sums of 128 of k are scaled and added up, or the sums of all of k are scaled, or neither.
  static constexpr bool kScalesBlocks = kLineScales<Weight>, kScalesEnd = kIsI8Channels<Weight>;
  static constexpr bool kHasScales = kScalesBlocks || kScalesEnd;
  // Of b each row has scales of its own; else each 128 of them share.
  static constexpr bool kColumnScales = kRowScales<Weight> || kScalesEnd;
  // b is expanded on its way to a stage.
  static constexpr bool kExpands = kIsI4<Weight> || kIsU4<Weight>;
  static constexpr int kBlockM = kBlockMT, kBlockN = kBlockNT;
  // A warpgroup multiplies 64 rows and 128 columns at a time: it holds the sums of one block of scales.
  static constexpr int kWavesM = kBlockM / 128, kWavesN = kScalesBlocks ? kBlockN / 128 : 1;
  static constexpr int kWaves = kWavesM * kWavesN;
  static constexpr int kRowBytes = 128, kBlockK = kRowBytes / static_cast<int>(sizeof(Element));
  static constexpr int kABytes = kBlockM * kRowBytes, kBBytes = kBlockN * kRowBytes;
  static constexpr int kStageBytes = kABytes + kBBytes;
  // Of pairs: a row, and a stage of them.
  static constexpr int kPairRowBytes = kBlockK / 2,
                       kPairBytes = kExpands ? kBlockN * kPairRowBytes : 0;
  // The experts' down product has few steps a tile and is bound by what it stores: boxes are worth more than stages.
  static constexpr bool kIsDown = kHasScales && kBlockN == 256 && !kGathers;
  static constexpr int kStages = kIsDown || kExpands ? 3 : (192 << 10) / kStageBytes;
  static constexpr int kPairsAt = kStages * kStageBytes;
  // Scales of a's rows, then those of b's rows or blocks. Those of columns are read while their stage is free again, so
  // there is room for one more.
  static constexpr int kScaleBytes = kHasScales ? (kBlockM + (kColumnScales ? kBlockN : 4)) * 4 : 0;
  static constexpr int kScaleStages = kStages + (kScalesBlocks && kColumnScales ? 1 : 0);
  static constexpr int kBoxesAt = kPairsAt + kPairStages * kPairBytes;  // multiples of 1024
  // Tiles that are handed out, and a barrier each.
  static constexpr bool kHasQueue = !kExpands && (kGathers || (!kHasScales && kBlockN == 256));
  static constexpr bool kHasMoreGroups = !kExpands && !kHasScales && kBlockN == 256;
  static constexpr int kQueueBytes = kHasQueue ? kQueueSlots * (16 + 8) : 0;
  static constexpr int kSmallBytes =
      (2 * kStages + kPairStages) * 8 + 16 + kScaleStages * kScaleBytes + kQueueBytes;
  static constexpr bool fits_boxes(int boxes) {
    return kBoxesAt + kSmallBytes + boxes * kMultiplyingWarps * kBoxBytes <= kMostSharedBytes;
  }
  static constexpr int kBoxes = fits_boxes(4) ? 4 : fits_boxes(2) ? 2 : 1;  // of a warp
  static constexpr int kBarriersAt = kBoxesAt + kBoxes * kMultiplyingWarps * kBoxBytes;
  static constexpr int kScalesAt = (kBarriersAt + (2 * kStages + kPairStages) * 8 + 15) / 16 * 16;
  static constexpr int kQueueAt = kScalesAt + kScaleStages * kScaleBytes;
  static constexpr int kSharedBytes = kQueueAt + kQueueBytes;
  static_assert(kSharedBytes <= kMostSharedBytes);
  static constexpr int kSums = kBlockN / kWavesN / 2;  // of a thread and a wave
  // All feed: rows that are gathered or expanded. Else one thread feeds and a few fetch scales.
  static constexpr bool kAllFeed = kGathers || kExpands;
  static constexpr int kScaleFeeders = kAllFeed ? kWarpgroup : kScaleThreads;
  // Arrivals that fill a stage, beside the bytes: each thread's copies, and each thread's own writes.
  static constexpr int kFeeders = (kExpands && kGathers ? 0 : 1) +
                                  (kAllFeed ? kWarpgroup : (kHasScales ? kScaleThreads : 0)) +
                                  (kExpands ? kWarpgroup : 0);
  // Columns left over that fill half a tile at most: both blocks take all of them, each of other rows, 128 at a time.
  static constexpr bool kHasNarrow =
      kScalesBlocks && !kGathers && !kExpands && kBlockM == 128 && kBlockN == 128;
  static_assert(kWaves == 1 || kScalesBlocks);
  static_assert(kStages + 1 < kQueueSlots);
  static_assert(!kGathers || (kBlockM == kGroupTileRows && kBlockN == 2 * kGatheredTileColumns));
  static_assert(!kExpands || kBlockN == 256);
};

// A block's tile of out; the other block of its cluster has the next one of the same rows or, shares_columns, of the
// same columns. None of its rows may be there.
struct Tile {
  int group, row, num_rows, column;
  bool shares_columns;
  bool is_second = false;  // of the second matrix, whose column it is, or whose group
  bool is_narrow = false;  // half of the columns
  bool is_upper = false;   // narrow, and one more belongs to it (lower_of())
};

// Two blocks' tile of a group, with its columns.
template <class C>
__device__ __forceinline__ GroupTile group_tile(const TiledParams& p, int index) {
  if constexpr (C::kGathers) return p.tiles[index];
  GroupTile tile = p.tiles[index / p.pairs];
  tile.column = index % p.pairs * kClusterBlocks;
  return tile;
}
template <class C>
__device__ __forceinline__ Tile block_tile(const TiledParams& p, const GroupTile& tile, int rank) {
  const bool shares_columns = tile.shares_column(C::kBlockM);
  const int column = tile.column_index() + (shares_columns ? 0 : rank);
  const int rows_before = shares_columns ? rank * C::kBlockM : 0;
  const bool is_second = C::kHasMoreGroups && tile.group >= p.second.first_group;
  return {.group = tile.group - (is_second ? p.second.first_group : 0),
          .row = tile.row + rows_before,
          .num_rows = column * p.block_columns < p.n ? tile.num_rows - rows_before : 0,
          .column = column * p.block_columns,
          .shares_columns = shares_columns,
          .is_second = is_second};
}

// A cluster's narrow tiles, two of each block, take as long as a pair of whole ones.
template <class C>
__device__ __forceinline__ Tile upper_narrow_tile(const TiledParams& p, int index, int rank) {
  const int row = ((index - p.first_narrow) * static_cast<int>(kNarrowTiles) + rank) * C::kBlockM;
  return {.group = 0,
          .row = row,
          .num_rows = p.rows - row,
          .column = p.narrow_column,
          .shares_columns = true,
          .is_second = p.narrow_is_second,
          .is_narrow = true,
          .is_upper = true};
}
template <class C>
__device__ __forceinline__ Tile lower_of(Tile upper) {
  upper.row += kClusterBlocks * C::kBlockM;
  upper.num_rows -= kClusterBlocks * C::kBlockM;
  upper.is_upper = false;
  return upper;
}

template <class C>
__device__ __forceinline__ Tile tile_at(const TiledParams& p, int index, int rank) {
  if (C::kHasNarrow && index >= p.first_narrow) return upper_narrow_tile<C>(p, index, rank);
  if (C::kGathers || p.tiles != nullptr) return block_tile<C>(p, group_tile<C>(p, index), rank);
  const int stripe = index / (p.raster * p.pairs), first = stripe * p.raster;
  const int height = min(p.raster, p.m_tiles - first), local = index - stripe * p.raster * p.pairs;
  const int row = (first + local % height) * C::kBlockM;
  const int column = (local / height * kClusterBlocks + rank) * p.block_columns;
  const bool is_second = column >= p.second.begin;
  return {.group = 0,
          .row = row,
          .num_rows = p.rows - row,
          .column = column - (is_second ? p.second.begin : 0),
          .shares_columns = false,
          .is_second = is_second};
}

template <class C>
__device__ __forceinline__ int num_pairs(const TiledParams& p) {
  if constexpr (C::kGathers) return *p.num_tiles;
  if (C::kHasNarrow && p.narrow > 0) return p.first_narrow + p.narrow;
  return p.pairs * (p.tiles != nullptr ? *p.num_tiles : p.m_tiles);
}

// A role's place in the ring of stages.
template <class C>
struct Ring {
  uint32_t base;
  int stage = 0, scale_stage = 0;
  uint32_t phase = 0;

  __device__ explicit Ring(uint32_t shared) : base(shared) {}
  __device__ uint32_t a() const { return base + stage * C::kStageBytes; }
  __device__ uint32_t b() const { return a() + C::kABytes; }
  __device__ uint32_t full() const { return base + C::kBarriersAt + stage * 8; }
  __device__ uint32_t empty() const { return full() + C::kStages * 8; }
  __device__ uint32_t scales() const {
    return base + C::kScalesAt +
           (C::kScaleStages == C::kStages ? stage : scale_stage) * C::kScaleBytes;
  }
  __device__ void advance() {
    if (C::kScaleStages != C::kStages && ++scale_stage == C::kScaleStages) scale_stage = 0;
    if (++stage < C::kStages) return;
    stage = 0;
    phase ^= 1;
  }
};

// Until the stage may be multiplied.
template <class C>
__device__ __forceinline__ void wait_full(const Ring<C>& ring) {
  barrier_wait(ring.full(), ring.phase);
  // What threads copied, unlike what the copy engine did, is not seen by the tensor cores without it.
  if constexpr (C::kGathers) show_to_engines();
}

// The stages of pairs have a barrier each.
template <class C>
__device__ __forceinline__ uint32_t pairs_full(uint32_t shared, int stage) {
  return shared + C::kBarriersAt + (2 * C::kStages + stage) * 8;
}

template <class C>
__device__ __forceinline__ void init_barriers(uint32_t shared) {
  Ring<C> ring(shared);
  for (int i = 0; i < C::kStages; ++i, ring.advance()) {
    barrier_init(ring.full(), C::kFeeders);
    barrier_init(ring.empty(), kMultiplyingWarps * kClusterBlocks);
  }
  for (int i = 0; i < kPairStages && C::kExpands; ++i) barrier_init(pairs_full<C>(shared, i), 1);
  barriers_are_ready();
}

}  // namespace fathom::cuda
