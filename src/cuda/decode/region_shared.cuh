#pragma once
// What the blocks of mla_decode's cluster keep and send each other. Internal to cuda/decode/.

#include "cuda/decode/pieces.cuh"

namespace fathom::cuda::decode {

inline constexpr int kThreads = 512, kWarps = kThreads / 32;
inline constexpr int kSplitRows = 128, kTileRows = 32, kTiles = kSplitRows / kTileRows;
inline constexpr int kRowBytes = kDim * 2, kRowStride = kRowBytes + 16;
// Splits that are one tree, and those of a call.
inline constexpr int kChunkSplits = 8, kMostSplits = kMostRows / kSplitRows;
// A head has so many blocks, and each of them these parts of its weights' rows: in passes of all warps.
inline constexpr int kHeadBlocks = 4, kPasses = 2;
inline constexpr int kMyQueryRows = kQuery / kHeadBlocks,
                     kMyQueryTiles = kMyQueryRows / 8 / kPasses;
inline constexpr int kMyUkRows = kLatent / kHeadBlocks, kMyUvRows = kHead / kHeadBlocks;
static_assert(4 * kSplitRows == kWarps * 32);  // values take the place of scores
static_assert(kMyQueryRows % (8 * kPasses) == 0 && kMyQueryRows / kPasses <= 32 &&
              kMyUkRows / 8 * kUkLines == kPasses * kWarps &&
              kMyUvRows / 8 * kUvLines == kPasses * kWarps && kQueryLines <= 12);

template <int kHeads>
struct Shared {
  alignas(128) char rows[kSplitRows * kRowStride];
  alignas(16) char new_row[kRowBytes];
  alignas(16) uint32_t x[kQueryIn / 4];         // e4m3
  alignas(16) uint32_t x_halves[kQueryIn / 2];  // the same as halves
  // bf16. Of q the own head's, and of all heads what is rotated; query is all heads', out_latent and out the own one's.
  alignas(16) uint32_t q[kHeads][kQuery / 2];
  alignas(16) uint32_t query[kHeads][kDim / 2];
  alignas(16) uint32_t out_latent[kLatent / 2];
  alignas(16) uint32_t out[kHead / 2];  // of the head's first block
  alignas(16) float values[kMostSplits][kMyUkRows];
  float2 stats[kMostSplits];
  alignas(16) float q_parts[kQueryLines][kMyQueryRows];
  alignas(16) float uk_parts[kUkLines][kMyUkRows];
  alignas(16) float uv_parts[kUvLines][kMyUvRows];
  alignas(16) float scores[kHeads][4][kSplitRows];
  alignas(16) uint16_t weights[kHeads][kSplitRows];                    // bf16
  float factors[kHeads][kTiles], sums[kHeads][kTiles][kTileRows / 2];  // sums: of two rows each
  float tile_max[kHeads][kTiles], max[kHeads];
  float x_scale[kQueryLines], q_scales[kPasses][2][kQueryLines];
  float norm[kNormWarps], append[kAppendThreads / 32];
  uint64_t tiles[kTiles], q_came, query_came, values_came, latent_came, out_came;
};

}  // namespace fathom::cuda::decode
