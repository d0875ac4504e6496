#pragma once
// What the blocks of mla_decode's cluster keep and send each other. Internal to cuda/decode/.

#include <type_traits>

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
                     kMyQueryTiles = kMyQueryRows / 16;  // of the matrix instruction
inline constexpr int kMyUkRows = kLatent / kHeadBlocks, kMyUvRows = kHead / kHeadBlocks;
static_assert(kMyQueryRows % 16 == 0 && kMyQueryRows / kPasses <= 32 && kPasses == 2 &&
              kMyUkRows / 8 * kUkLines == kPasses * kWarps &&
              kMyUvRows / 8 * kUvLines == kPasses * kWarps && kQueryLines <= 12);

// Behind rows that lanes read side by side there are words that keep the banks apart.
inline constexpr int kHalvesStride = kQueryIn / 2 + 4, kQueryStride = kDim / 2 + 4,
                     kWeightStride = kSplitRows + 8, kStagedChannels = 32,
                     kStagedStride = kStagedChannels + 4;

// Of the tokens' compressed queries and their products with q_b.
template <int kTokens>
struct SharedQuery {
  alignas(16) uint32_t x[kTokens][kQueryIn / 4];          // e4m3
  alignas(16) uint32_t x_halves[kTokens][kHalvesStride];  // the same as halves
  alignas(16) float q_parts[kQueryLines][kTokens][kMyQueryRows];
};

// Of the softmax of a column: a token's head, the heads of a token behind each other.
template <int kColumns>
struct SharedSoftmax {
  alignas(16) uint16_t weights[kColumns][kWeightStride];                   // bf16
  float factors[kColumns][kTiles], sums[kColumns][kTiles][kTileRows / 2];  // sums: of two rows each
  float tile_max[kColumns][kTiles], max[kColumns];
};

// Parts of the inner dimension whose scores lie beside each other, and columns that a warp sends at once. Of the most
// columns the other two parts are added in place, and they go in two turns.
template <int kColumns>
inline constexpr bool kHasMostColumns = kColumns > 12;
template <int kColumns>
inline constexpr int kScoreParts = kHasMostColumns<kColumns> ? 2 : 4;
template <int kColumns>
inline constexpr int kStagedColumns = kHasMostColumns<kColumns> ? kColumns / 2 : kColumns;
template <int kColumns>
inline constexpr int kScoreStride = kScoreParts<kColumns>* kSplitRows + 4;

// What lies over each other is used one after the other, with a barrier of the block between (values: those of others,
// which come when all of a block's threads are beyond their first barrier behind q).
// query is all heads', bf16.
template <int kColumns, int kTokens>
struct SharedColumns {
  alignas(16) uint32_t query[kColumns][kQueryStride];
  union {
    alignas(16) float scores[kColumns][kScoreStride<kColumns>];
    alignas(16) float staged[kWarps][kColumns][kStagedStride];
  };
  union {
    alignas(16) float uk_parts[kUkLines][kTokens][kMyUkRows];
    SharedSoftmax<kColumns> softmax;
  };
};
// Where there is one round of rows, nobody reads queries behind the scores. W_UK's parts are read when all queries have
// come, which the scores wait for.
template <int kColumns, int kTokens>
struct SharedMostColumns {
  union {
    alignas(16) uint32_t query[kColumns][kQueryStride];
    SharedSoftmax<kColumns> softmax;
  };
  union {
    alignas(16) float scores[kColumns][kScoreStride<kColumns>];
    alignas(16) float staged[kWarps][kStagedColumns<kColumns>][kStagedStride];
    alignas(16) float uk_parts[kUkLines][kTokens][kMyUkRows];
  };
};
template <int kColumns, int kTokens>
using SharedOfColumns =
    std::conditional_t<kHasMostColumns<kColumns>, SharedMostColumns<kColumns, kTokens>,
                       SharedColumns<kColumns, kTokens>>;

// Of q the own head's, and of all heads what is rotated; out_latent and out are the own one's. bf16.
template <int kHeads, int kTokens>
struct Shared : SharedOfColumns<kHeads * kTokens, kTokens> {
  static constexpr int kSplits = kTokens == 1 ? kMostSplits : kHeads * kHeadBlocks;

  alignas(128) char rows[kSplitRows * kRowStride];
  alignas(16) char new_row[kTokens == 1 ? kRowBytes : 16];  // of calls that have several rounds
  alignas(16) uint32_t out_latent[kTokens][kLatent / 2];
  alignas(16) uint32_t out[kTokens][kHead / 2];  // of the head's first block
  union {
    SharedQuery<kTokens> in;
    alignas(16) float values[kTokens][kSplits][kMyUkRows];
  };
  union {
    alignas(16) uint32_t q[kTokens][kHeads][kQuery / 2];
    alignas(16) float uv_parts[kUvLines][kTokens][kMyUvRows];
  };
  float2 stats[kTokens][kSplits];
  float x_scale[kTokens][kQueryLines], q_scales[kPasses * kTokens][2][kQueryLines];
  float norm[kTokens][kNormWarps], append[kTokens][kAppendThreads / 32];
  uint64_t tiles[kTiles], q_came, query_came, values_came, latent_came, out_came;
};

}  // namespace fathom::cuda::decode
