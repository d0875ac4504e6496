#pragma once
// Products of many rows: out = a * b^T, a tile of 128 or 256 rows at a time, on tensor copies and warpgroup-wide
// matrix instructions. Also grouped: each tile of rows is multiplied with the matrix of its own group.
//
//   tiled_product({.a = {x, DType::kBf16, tokens, in, in}, .b = weight, .n = out, ...}, stream);
//
// Internal to gemm/. Only enqueues; thread-safe for distinct streams.

#include <cstdint>

#include "cuda/gemm/stored.h"
#include "cuda/gemm/tensor_map.h"
#include "ops/stream.h"
#include "tuned/choice.h"

namespace fathom::cuda {

// Rows of a group begin at multiples of this: what is stored at once.
inline constexpr int kGroupAlignment = 16;
// Rows of a tile of a group, at most.
inline constexpr int kGroupTileRows = 128;
inline constexpr int kGatheredTileRows = 2 * kGroupTileRows;
// Where the columns of a second matrix may begin.
inline constexpr int kSecondAlignment = 256;
// Columns of out that a block makes of gathered rows.
inline constexpr int kGatheredTileColumns = 128;

// Rows [row, row + num_rows) of a and of out, of one group. Up to the next multiple of kGroupAlignment out may get
// anything. Of gathered rows, two blocks': tile `column` of the columns where shares_column() says so, as it does of
// more than kGroupTileRows rows, of which each block has half; else that tile and the next one, all rows each.
struct alignas(16) GroupTile {
  static constexpr int kSharesColumn =
      1 << 30;  // in `column`: of a last one, whose rows are one block's

  int group, row, num_rows, column;

  constexpr bool shares_column(int block_rows) const {
    return num_rows > block_rows || column >= kSharesColumn;
  }
  constexpr int column_index() const { return column & (kSharesColumn - 1); }
};

// A second matrix for the same rows.
struct SecondMatrix {
  const void* b = nullptr;         // as the first [n, k]; null: there is none
  const float* b_scale = nullptr;  // as the first's
  int64_t n = 0;
  void* out = nullptr;  // bf16[rows, n]
  int64_t out_stride = 0;
};

// Groups behind the others, whose matrices are parts of one: of a gated product [2, groups * n / 2, k], else
// [n, groups * k], k a multiple of a stage's.
struct MoreGroups {
  const void* b = nullptr;
  int64_t groups = 0;
};

struct ProductArgs {
  Stored weight = Stored::kBf16;  // how b lies; i4 grouped only
  Matrix a;                       // bf16|f8|i8[rows, k], row_dtype_of(weight)
  const float* a_scale =
      nullptr;  // f32[rows, ceil(k / 128)], [rows] of i8 with scales of channels; not of bf16
  const void* b = nullptr;  // [groups * n, k]
  // f32[groups, ceil(n / 128), ceil(k / 128)] of f8 and i8, [groups, n, ceil(k / 128)] of i4, [groups, n] of i8 with
  // scales of channels
  const float* b_scale = nullptr;
  // u4 only: f16[groups, n, 2 * k / group_channels].
  const uint16_t* zero_points = nullptr;
  int64_t group_channels = 0;
  int64_t groups = 1, n = 0;
  bool accumulate = false;
  // Gathered rows only: n is twice the columns of out, and out = silu(first half) * second half. Where rows have scales
  // of 128 channels, out is quantised as they are, and each half of n is a multiple of 128.
  bool is_gated = false;
  void* out = nullptr;         // bf16|f32[rows, n], 16-byte aligned rows, or what is_gated says
  float* out_scale = nullptr;  // f32[rows, n / 2 / 128], where out is quantised
  tensor::DType out_dtype = tensor::DType::kBf16;
  int64_t out_stride = 0;
  // Gathered: row i of the product is row a_rows[i] of a. Null: row i.
  const int* a_rows = nullptr;  // i32[num_rows]
  int64_t num_rows = 0;         // of the product, with a_rows
  // Grouped; null: all rows are of group 0.
  const GroupTile* tiles = nullptr;
  const int* num_tiles = nullptr;  // on the device
  int64_t max_tiles = 0;           // what the host knows of it
  // 0, on the device: counts the tiles that clusters get as they become free, by kernels that do so (Tiling). Null:
  // they take them in turn.
  int* taken = nullptr;
  // kDefault and 0: whichever takes fewer rounds. Without groups, and of the experts' down product but of bf16.
  tuned::Tile tile = tuned::Tile::kDefault;
  int raster = 0;
  // Neither gathered nor grouped, not added to, bf16 results, and n a multiple of kSecondAlignment.
  SecondMatrix second{};
  MoreGroups more{};  // of bf16, gated or with large tiles
};

// What a product without groups takes, in rounds of all clusters with the smaller tiles.
double rounds_of(const ProductArgs& args);

// REQUIRES: can_map() of a and b; n a multiple of 8. Gathered: gated and grouped, and the tiles name every column.
void tiled_product(const ProductArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
