#pragma once
// How many tiles a product of product.h has, and who multiplies them.
//
//   const int64_t pairs = num_pairs_of(args, 128, 256);         // of tiles of 128 rows and 256 columns
//
// Internal to gemm/.

#include "cuda/gemm/product.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {

// Blocks that take neighbouring tiles.
inline constexpr int kClusterBlocks = 2;

// Narrow tiles that a cluster takes one after the other, two a block (Tiling::kHasNarrow).
inline constexpr int64_t kNarrowTiles = 4;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int64_t num_clusters() { return num_multiprocessors() / kClusterBlocks; }

inline int64_t num_whole_pairs_of(const ProductArgs& args, int block_m, int block_n) {
  if (args.a_rows != nullptr) return args.max_tiles;
  const int64_t m = args.tiles != nullptr ? args.max_tiles : ceil_div(args.a.rows, block_m);
  return m * ceil_div(args.n + args.second.n, int64_t{kClusterBlocks} * block_n);
}

// Of 128 rows and columns where the last columns, half a tile at most, are narrow tiles.
inline int64_t num_pairs_with_narrow(const ProductArgs& args) {
  const int64_t m = ceil_div(args.a.rows, 128);
  return m * ((args.n + args.second.n) / (kClusterBlocks * 128)) + ceil_div(m, kNarrowTiles);
}
// Whether these take fewer rounds.
inline bool takes_narrow(const ProductArgs& args) {
  const int64_t n = args.n + args.second.n, last = n % (kClusterBlocks * 128);
  const bool scales_blocks = args.weight == Stored::kF8 || args.weight == Stored::kI8Blocks;
  return scales_blocks && args.tiles == nullptr && last > 0 && last <= 64 && last < n &&
         ceil_div(num_pairs_with_narrow(args), num_clusters()) <
             ceil_div(num_whole_pairs_of(args, 128, 128), num_clusters());
}

inline int64_t num_pairs_of(const ProductArgs& args, int block_m, int block_n) {
  if (block_m == 128 && block_n == 128 && takes_narrow(args)) return num_pairs_with_narrow(args);
  return num_whole_pairs_of(args, block_m, block_n);
}

// One per type of weight, each in a file of its own. Pairs of 4 bits have large tiles alone.
void run_tiled_bf16(const ProductArgs& args, bool takes_large_tiles, ops::Stream& stream);
void run_tiled_f8(const ProductArgs& args, bool takes_large_tiles, ops::Stream& stream);
void run_tiled_i8_blocks(const ProductArgs& args, bool takes_large_tiles, ops::Stream& stream);
void run_tiled_i8_channels(const ProductArgs& args, bool takes_large_tiles, ops::Stream& stream);
void run_tiled_i4(const ProductArgs& args, ops::Stream& stream);
void run_tiled_u4(const ProductArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
