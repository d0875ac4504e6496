#pragma once
// Groups: the (token, j) pairs of a call of experts, sorted by expert on the device. The rows of an expert begin at
// a multiple of kGroupAlignment of a buffer of max_rows() rows and are cut into tiles (GroupTile, product.cuh).
//
//   const Groups groups = carve_groups(sizes, arena);
//   sort_pairs(sizes, ids, groups, stream);          // then launch over groups.tiles, *groups.num_tiles
//
// Views of scratch memory. Only enqueues.

#include <algorithm>
#include <cstdint>

#include "cuda/gemm/product.cuh"
#include "cuda/runtime/device_arena.h"
#include "ops/stream.h"

namespace fathom::cuda {

inline constexpr int64_t kMaxGroups = 1024;
// Rows of a tile where experts have few (few_rows.h), at most.
inline constexpr int kFewTileRows = 64;

struct GroupSizes {
  int64_t tokens = 0, num_experts_per_tok = 0;
  int64_t first_expert = 0, experts = 0;
  int64_t shared = 0;  // experts behind those, which every token has: the first of its pairs
  int64_t gathered_columns = 0;        // tiles of columns of the product whose rows are gathered
  int64_t tile_rows = kGroupTileRows;  // of the tiles without columns: this or kFewTileRows

  int64_t per_token() const { return shared + num_experts_per_tok; }
  int64_t all_experts() const { return experts + shared; }
  int64_t pairs() const { return tokens * per_token(); }
  // Every expert that is named may leave one tile, and one multiple of the alignment, unfilled.
  // As if tiles had few rows, so that calls of more tokens have room for more.
  int64_t max_tiles() const { return max_tiles_of(kFewTileRows); }
  int64_t max_gathered_tiles() const { return max_tiles_of(kGatheredTileRows) * gathered_columns; }
  int64_t max_rows() const { return max_tiles_of(kGroupAlignment) * kGroupAlignment; }

 private:
  int64_t max_tiles_of(int64_t rows) const {
    return pairs() / rows + std::min(all_experts(), pairs());
  }
};
// A list of tiles on the device.
struct GroupTiles {
  GroupTile* tiles;  // [most]
  int* count;        // [1]
  int* taken;        // [1]  0; counts what the product behind it hands out
};

struct Groups {
  int* starts;  // i32[chunks of pairs, experts]  rows of the chunk's first pairs
  GroupTiles tiles, gathered_tiles;  // the second not where tiles have few rows
  int* counters;                     // i32[max_tiles + 1], 0; where tiles have few rows
  int* row_of_pair;                  // i32[pairs]         -1: the pair names no expert
  int* token_of_row;                 // i32[max_rows]      undefined past the pairs of a tile
};

Groups carve_groups(const GroupSizes& sizes, DeviceArena& arena);
// ids  i32[tokens, num_experts_per_tok]; what is not in first_expert + [0, experts) is left out.
// REQUIRES: all_experts() <= kMaxGroups.
void sort_pairs(const GroupSizes& sizes, const int32_t* ids, const Groups& groups,
                ops::Stream& stream);

}  // namespace fathom::cuda
