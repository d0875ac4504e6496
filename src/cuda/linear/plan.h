#pragma once
// How a product divides its inner dimension where nothing was measured (choose.h): a function of one matrix's sizes and
// the device alone, never of the number of tokens, so that a row has the same bits in every call.
//
//   const Split split = split_of(num_lines, row_tiles, num_multiprocessors());   // row_tiles: 16 rows each
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

// A number of blocks that was found on a device of 132 multiprocessors, for one of so many.
inline int64_t part_of_device(int64_t blocks, int64_t multiprocessors) {
  constexpr int64_t kMeasuredWith = 132;
  return blocks * multiprocessors / kMeasuredWith;
}

// Warps of one block that share the lines of the inner dimension.
inline int warps_for(int64_t lines) {
  int warps = 1;
  while (warps < kBlockWarps && lines >= 2 * warps) warps *= 2;
  return warps;
}

// Few rows leave multiprocessors without work unless blocks share them; where there are many, warps take longer parts,
// so that all blocks find room at once.
inline Split split_of(int64_t lines, int64_t row_tiles, int64_t multiprocessors) {
  const int64_t wanted_blocks = part_of_device(128, multiprocessors);
  const int64_t many_blocks = 2 * multiprocessors;
  Split split{.group = 1, .warps = warps_for(lines)};
  while (split.group < 8 && row_tiles * split.group < wanted_blocks &&
         lines >= 2 * split.group * kBlockWarps)
    split.group *= 2;
  while (split.warps > 1 && lines < 3 * split.warps &&
         row_tiles * split.warps > many_blocks * kBlockWarps)
    split.warps /= 2;
  return split;
}

// Stages of a warp's ring: what its lines can use, at least 2.
inline int stages_for(int64_t lines_per_warp, int most) {
  return static_cast<int>(lines_per_warp < 2 ? 2 : lines_per_warp > most ? most : lines_per_warp);
}

}  // namespace fathom::cuda
