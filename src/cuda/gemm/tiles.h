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

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int64_t num_pairs_of(const ProductArgs& args, int block_m, int block_n) {
  if (args.a_rows != nullptr) return args.max_tiles;
  const int64_t m = args.tiles != nullptr ? args.max_tiles : ceil_div(args.a.rows, block_m);
  return m * ceil_div(args.n + args.second.n, int64_t{kClusterBlocks} * block_n);
}

inline int64_t num_clusters() { return num_multiprocessors() / kClusterBlocks; }

// One per type of weight, each in a file of its own. Pairs of 4 bits have large tiles alone.
void run_tiled_bf16(const ProductArgs& args, bool takes_large_tiles, ops::Stream& stream);
void run_tiled_f8(const ProductArgs& args, bool takes_large_tiles, ops::Stream& stream);
void run_tiled_i8_blocks(const ProductArgs& args, bool takes_large_tiles, ops::Stream& stream);
void run_tiled_i8_channels(const ProductArgs& args, bool takes_large_tiles, ops::Stream& stream);
void run_tiled_i4(const ProductArgs& args, ops::Stream& stream);
void run_tiled_u4(const ProductArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
