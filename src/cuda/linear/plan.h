#pragma once
// How a product divides its inner dimension: a function of one matrix's sizes alone, never of the number of tokens,
// so that a row has the same bits in every call.
//
//   const Split split = split_of(num_lines, row_tiles);     // row_tiles: 16 rows each, of all matrices together
//
// The lines are cut into group * warps parts of nearly one size. A warp sums one part in order; the warps of a block
// and then the blocks of a group are added in order. Pure functions.

#include <cstdint>

namespace fathom::cuda {

inline constexpr int kBlockWarps = 8;

struct Split {
  int group = 1;  // blocks that share a tile of rows
  int warps = 1;  // warps of such a block that share it; a power of two
};

// Of the inner dimension's lines, over the warps of one block.
inline int warps_for(int64_t lines) {
  int warps = 1;
  while (warps < kBlockWarps && lines >= 2 * warps) warps *= 2;
  return warps;
}

// Few rows leave multiprocessors without work unless blocks share them; where there are many, warps take longer parts,
// so that all blocks find room at once.
inline Split split_of(int64_t lines, int64_t row_tiles) {
  constexpr int64_t kWantedBlocks = 128, kManyBlocks = 2 * 132;
  Split split{.group = 1, .warps = warps_for(lines)};
  while (split.group < 8 && row_tiles * split.group < kWantedBlocks &&
         lines >= 2 * split.group * kBlockWarps)
    split.group *= 2;
  while (split.warps > 1 && lines < 3 * split.warps &&
         row_tiles * split.warps > kManyBlocks * kBlockWarps)
    split.warps /= 2;
  return split;
}

// Stages of a warp's ring: what its lines can use, at least 2.
inline int stages_for(int64_t lines_per_warp, int most) {
  return static_cast<int>(lines_per_warp < 2 ? 2 : lines_per_warp > most ? most : lines_per_warp);
}

}  // namespace fathom::cuda
