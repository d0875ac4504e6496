#pragma once
// Products of many rows: out = a * b^T, a tile of 128 or 256 rows at a time, on tensor copies and warpgroup-wide
// matrix instructions. Also grouped: each tile of rows is multiplied with the matrix of its own group.
//
//   tiled_product({.a = {x, DType::kBf16, tokens, in, in}, .b = weight, .n = out, ...}, stream);
//
// Internal to gemm/. Only enqueues; thread-safe for distinct streams.

#include <vector_types.h>

#include <cstdint>

#include "cuda/gemm/tensor_map.h"
#include "ops/stream.h"

namespace fathom::cuda {

// Rows of a group begin at multiples of this.
inline constexpr int kGroupAlignment = 128;

struct ProductArgs {
  Matrix a;                        // bf16|f8[rows, k]
  const float* a_scale = nullptr;  // f32[rows, ceil(k / 128)], f8 only
  const void* b = nullptr;         // type of a [groups * n, k]
  const float* b_scale = nullptr;  // f32[groups, ceil(n / 128), ceil(k / 128)], f8 only
  int64_t groups = 1, n = 0;
  bool accumulate = false;
  // n is twice the columns of out, and out = silu(first half) * second half; of f8 rows, out is f8 too and each half
  // of n a multiple of 128.
  bool is_gated = false;
  void* out = nullptr;         // bf16|f32[rows, n], 16-byte aligned rows, or what is_gated says
  float* out_scale = nullptr;  // f32[rows, n / 2 / 128], f8 and gated only
  tensor::DType out_dtype = tensor::DType::kBf16;
  int64_t out_stride = 0;
  // Grouped: tile i is rows [128 * i, 128 * i + y) of group x. Null: all rows are of group 0.
  const int2* tiles = nullptr;     // {x, y}
  const int* num_tiles = nullptr;  // on the device
  int64_t max_tiles = 0;           // what the host knows of it
  const int* out_rows = nullptr;   // the row of out that a row of a becomes; null: the same
};

// REQUIRES: can_map() of a and b; n a multiple of 8.
void tiled_product(const ProductArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
