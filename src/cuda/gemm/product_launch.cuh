#pragma once
// Starts the kernel of product_kernel.cuh: what it is given, by the tiles that were chosen.
//
//   run_tiled<I8Blocks>(args, takes_large_tiles, stream);      // one per type of weight, each in a file of its own
//
// Internal to gemm/.

#include <algorithm>
#include <limits>

#include "cuda/gemm/product_kernel.cuh"
#include "cuda/gemm/tiles.h"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {

using tensor::DType;

template <class C>
void add_second(const ProductArgs& args, TiledParams& p) {
  const SecondMatrix& second = args.second;
  FATHOM_CHECK(args.n % kSecondAlignment == 0 && args.tiles == nullptr && !args.accumulate &&
                   args.out_dtype == DType::kBf16,
               "a second matrix behind " << args.n << " columns");
  p.second.b = tensor_map({.data = second.b,
                           .dtype = args.a.dtype,
                           .rows = second.n,
                           .columns = args.a.columns,
                           .stride = args.a.columns},
                          C::kBlockN / 2);
  p.second.out_map = tensor_map({.data = second.out,
                                 .dtype = DType::kBf16,
                                 .rows = args.a.rows,
                                 .columns = second.n,
                                 .stride = second.out_stride},
                                kBoxRows);
  p.second.b_scale = second.b_scale;
  p.second.rows = static_cast<int>(second.n);
  p.second.begin = p.n;
  p.pairs = static_cast<int>(ceil_div(p.n + second.n, int64_t{kClusterBlocks} * p.block_columns));
}

// Behind what p.b, p.out_map, p.n and p.block_columns are.
template <class C>
void add_more_groups(const ProductArgs& args, TiledParams& p) {
  const int64_t k = args.a.columns, n = args.n, more = args.more.groups;
  FATHOM_CHECK(args.tiles != nullptr && args.second.b == nullptr && k % C::kBlockK == 0,
               "more groups of " << k << " channels");
  const Matrix b{.data = args.more.b,
                 .dtype = args.a.dtype,
                 .rows = C::kGathers ? more * n : n,
                 .columns = C::kGathers ? k : more * k,
                 .stride = C::kGathers ? k : more * k};
  p.second.b = tensor_map(b, C::kBlockN / 2);
  p.second.out_map = p.out_map;
  p.second.rows = p.n;
  p.second.first_group = static_cast<int>(args.groups);
  p.second.group_rows = C::kGathers ? p.n : 0;
  p.second.group_k = C::kGathers ? 0 : static_cast<int>(k);
  p.second.half_distance = C::kGathers ? static_cast<int>(more) * p.n : p.half_distance;
}

// Behind what p.m_tiles and p.second are.
template <class C>
void add_narrow(const ProductArgs& args, TiledParams& p) {
  constexpr int64_t kPair = int64_t{kClusterBlocks} * C::kBlockN;
  const int64_t whole = (args.n + args.second.n) / kPair;
  p.pairs = static_cast<int>(whole);
  p.first_narrow = p.pairs * p.m_tiles;
  p.narrow = static_cast<int>(ceil_div(p.m_tiles, kNarrowTiles));
  p.narrow_is_second = args.second.b != nullptr;
  p.narrow_column = static_cast<int>(whole * kPair - (p.narrow_is_second ? args.n : 0));
}

template <class C>
TiledParams params_of(const ProductArgs& args) {
  const int64_t b_columns = C::kExpands ? args.a.columns / 2 : args.a.columns;
  const Matrix b{.data = args.b,
                 .dtype = C::kExpands ? DType::kU8 : args.a.dtype,
                 .rows = args.groups * args.n,
                 .columns = b_columns,
                 .stride = b_columns};
  TiledParams p{};
  const int64_t rows = C::kGathers ? args.num_rows : args.a.rows;
  p.a = tensor_map(args.a, C::kBlockM / kClusterBlocks);
  p.b =
      C::kExpands ? plain_map(b, C::kBlockN / 2, C::kPairRowBytes) : tensor_map(b, C::kBlockN / 2);
  if (args.out_dtype == DType::kBf16 && !args.accumulate && args.out_scale == nullptr)
    p.out_map = tensor_map({.data = args.out,
                            .dtype = DType::kBf16,
                            .rows = rows,
                            .columns = C::kGathers ? args.n / 2 : args.n,
                            .stride = args.out_stride},
                           kBoxRows);
  p.a_scale = args.a_scale;
  p.b_scale = args.b_scale;
  p.out = args.out;
  p.out_scale = args.out_scale;
  if (args.zero_points != nullptr) {
    p.zero_points = args.zero_points;
    p.groups = static_cast<int>(args.a.columns / args.group_channels);
    p.group_channels = static_cast<int>(args.group_channels);
  }
  p.out_stride = args.out_stride;
  p.rows = static_cast<int>(rows);
  p.group_rows = static_cast<int>(args.n);
  p.n = C::kGathers ? p.group_rows / 2 : p.group_rows;
  p.block_columns = C::kGathers ? kGatheredTileColumns : C::kBlockN;
  p.pairs = static_cast<int>(
      ceil_div(p.n, C::kGathers ? p.block_columns : kClusterBlocks * p.block_columns));
  p.second.begin = std::numeric_limits<int>::max();
  if (args.second.b != nullptr) add_second<C>(args, p);
  p.half_distance = C::kGathers ? p.n : C::kBlockN / 2;
  p.second.first_group = std::numeric_limits<int>::max();
  if constexpr (C::kHasMoreGroups) {
    if (args.more.groups > 0) add_more_groups<C>(args, p);
  } else {
    FATHOM_CHECK(args.more.groups == 0, "tiles that have no more groups");
  }
  p.num_steps = static_cast<int>(ceil_div(args.a.columns, C::kBlockK));
  p.m_tiles = static_cast<int>(ceil_div(args.a.rows, C::kBlockM));
  p.first_narrow = std::numeric_limits<int>::max();
  if constexpr (C::kHasNarrow)
    if (takes_narrow(args)) add_narrow<C>(args, p);
  // The clusters that work at once should share what they read: so many tiles of rows by as many columns.
  p.raster = args.raster > 0 ? args.raster : C::kBlockM == 256 ? 8 : 16;
  p.out_is_f32 = args.out_dtype == DType::kF32;
  p.accumulate = args.accumulate;
  p.tiles = args.tiles;
  p.num_tiles = args.num_tiles;
  p.taken = args.taken;
  if constexpr (C::kGathers) {
    const int64_t element_bytes = tensor::dtype_bytes(args.a.dtype);
    p.a_data = static_cast<const char*>(args.a.data);
    p.a_rows = args.a_rows;
    p.a_stride_bytes = args.a.stride * element_bytes;
    p.row_pieces = static_cast<int>(args.a.columns * element_bytes / 16);
  }
  return p;
}

template <class C>
void start_tiled(const ProductArgs& args, ops::Stream& stream) {
  const int64_t pairs = num_pairs_of(args, C::kBlockM, C::kBlockN);
  const int64_t clusters = std::min(pairs, num_clusters());
  launch(tiled_kernel<C>,
         {.grid = static_cast<unsigned>(clusters * kClusterBlocks),
          .block = kTiledThreads,
          .shared_bytes = C::kSharedBytes,
          .cluster = kClusterBlocks},
         stream, params_of<C>(args));
}

// The larger tiles of weights with scales of blocks are of rows, but of groups, which have few.
template <class W>
void run_tiled(const ProductArgs& args, bool takes_large_tiles, ops::Stream& stream) {
  constexpr bool kHasTallTiles = kLineScales<W>;
  if (args.is_gated) {
    start_tiled<Tiling<W, 128, 256, true>>(args, stream);
  } else if (!takes_large_tiles) {
    start_tiled<Tiling<W, 128, 128>>(args, stream);
  } else if (args.tiles != nullptr || !kHasTallTiles) {
    start_tiled<Tiling<W, 128, 256>>(args, stream);
  } else if constexpr (kHasTallTiles) {
    start_tiled<Tiling<W, 256, 128>>(args, stream);
  }
}

}  // namespace fathom::cuda
