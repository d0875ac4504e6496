#include "cuda/gemm/product.cuh"

#include <algorithm>
#include <limits>

#include "cuda/gemm/product_kernel.cuh"
#include "cuda/runtime/launch.cuh"
#include "tensor/scale_block.h"

namespace fathom::cuda {
namespace {

using tensor::Bf16, tensor::DType, tensor::F8E4M3;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t num_pairs_of(const ProductArgs& args, int block_m, int block_n) {
  if (args.a_rows != nullptr) return args.max_tiles;
  const int64_t m = args.tiles != nullptr ? args.max_tiles : ceil_div(args.a.rows, block_m);
  return m * ceil_div(args.n + args.second.n, int64_t{kClusterBlocks} * block_n);
}

int64_t num_clusters() { return num_multiprocessors() / kClusterBlocks; }

// The clusters that work at once should share what they read: `raster` tiles of rows by as many columns.
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

template <class C>
TiledParams params_of(const ProductArgs& args) {
  const Matrix b{.data = args.b,
                 .dtype = args.a.dtype,
                 .rows = args.groups * args.n,
                 .columns = args.a.columns,
                 .stride = args.a.columns};
  TiledParams p{};
  const int64_t rows = C::kGathers ? args.num_rows : args.a.rows;
  p.a = tensor_map(args.a, C::kBlockM / kClusterBlocks);
  p.b = tensor_map(b, C::kBlockN / 2);
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
  p.num_steps = static_cast<int>(ceil_div(args.a.columns, C::kBlockK));
  p.m_tiles = static_cast<int>(ceil_div(args.a.rows, C::kBlockM));
  p.raster = args.raster > 0 ? args.raster : C::kBlockM == 256 ? 8 : 16;
  p.out_is_f32 = args.out_dtype == DType::kF32;
  p.accumulate = args.accumulate;
  p.tiles = args.tiles;
  p.num_tiles = args.num_tiles;
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
void start(const ProductArgs& args, ops::Stream& stream) {
  const int64_t pairs = num_pairs_of(args, C::kBlockM, C::kBlockN);
  const int64_t clusters = std::min(pairs, num_clusters());
  launch(tiled_kernel<C>,
         {.grid = static_cast<unsigned>(clusters * kClusterBlocks),
          .block = kTiledThreads,
          .shared_bytes = C::kSharedBytes,
          .cluster = kClusterBlocks},
         stream, params_of<C>(args));
}

// A large tile takes so much longer than one of 128 x 128.
constexpr double kLargeTile = 1.85;

double large_rounds(const ProductArgs& args) {
  const bool is_f8 = args.a.dtype == DType::kF8E4M3;
  const int64_t pairs = num_pairs_of(args, is_f8 ? 256 : 128, is_f8 ? 128 : 256);
  return kLargeTile * static_cast<double>(ceil_div(pairs, num_clusters()));
}

double small_rounds(const ProductArgs& args) {
  return static_cast<double>(ceil_div(num_pairs_of(args, 128, 128), num_clusters()));
}

// As was chosen, else what takes fewer rounds. Groups of f8 are bound by what is read from the L2 cache: wide tiles,
// which need whole blocks of scales, read their rows half as often.
bool takes_large_tiles(const ProductArgs& args) {
  const bool is_grouped_f8 = args.tiles != nullptr && args.a.dtype == DType::kF8E4M3;
  const bool can = !is_grouped_f8 || args.n % (4 * tensor::kScaleBlock) == 0;
  if (args.tile != tuned::Tile::kDefault) return can && args.tile == tuned::Tile::kLarge;
  return is_grouped_f8 ? can : large_rounds(args) <= small_rounds(args);
}

}  // namespace

double rounds_of(const ProductArgs& args) {
  return std::min(large_rounds(args), small_rounds(args));
}

void tiled_product(const ProductArgs& args, ops::Stream& stream) {
  if (args.a.rows == 0) return;
  FATHOM_CHECK(args.is_gated == (args.a_rows != nullptr), "rows are gathered to be gated");
  if (args.is_gated) FATHOM_CHECK(args.tiles != nullptr, "gathered rows want groups");
  if (args.a.dtype == DType::kF8E4M3) {
    if (args.is_gated) {
      FATHOM_CHECK(args.n % (2 * tensor::kScaleBlock) == 0 && args.out_scale != nullptr,
                   "gated f8 products of " << args.n << " columns");
      start<Tiling<F8E4M3, 128, 256, true>>(args, stream);
    } else if (!takes_large_tiles(args)) {
      start<Tiling<F8E4M3, 128, 128>>(args, stream);
    } else if (args.tiles != nullptr) {
      start<Tiling<F8E4M3, 128, 256>>(args, stream);
    } else {
      start<Tiling<F8E4M3, 256, 128>>(args, stream);
    }
  } else if (args.a_rows != nullptr) {
    start<Tiling<Bf16, 128, 256, true>>(args, stream);
  } else if (takes_large_tiles(args)) {
    start<Tiling<Bf16, 128, 256>>(args, stream);
  } else {
    start<Tiling<Bf16, 128, 128>>(args, stream);
  }
}

}  // namespace fathom::cuda
