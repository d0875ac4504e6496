#pragma once
// Rows quantised into scratch, for products that were given plain ones: to e4m3 per 128 channels (ops/quantize_fp8.h),
// or to integers of 8 bits per 128 channels or row (ops/linear.h).
//
//   quantize_rows({.x = x, .stride = stride, .q = q, .scale = scale, .rows = n, .dim = k}, stream);
//
// Rows may have heads, each quantised as a row of its own.
//
// Internal to cuda/.

#include <cstdint>

#include "cuda/gemm/stored.h"
#include "ops/stream.h"

namespace fathom::cuda {

enum class RowKind : uint8_t { kE4m3, kI8Blocks, kI8Rows };
constexpr RowKind row_kind(Stored weight) {
  return weight == Stored::kI8Channels ? RowKind::kI8Rows
         : weight == Stored::kI8Blocks ? RowKind::kI8Blocks
                                       : RowKind::kE4m3;
}

struct QuantizeRowsParams {
  RowKind kind = RowKind::kE4m3;
  const void* x = nullptr;              // bf16[rows, heads, dim], or f32 when x_is_float
  int64_t stride = 0, head_stride = 0;  // elements
  bool x_is_float = false;
  void* q = nullptr;       // e4m3|i8[rows, heads, dim]
  float* scale = nullptr;  // f32[rows, heads, ceil(dim / 128)], or [rows] of kI8Rows
  int64_t rows = 0;
  int heads = 1, dim = 0;  // of kI8Rows one head
  // The next kernel may begin before the kernels ahead of this one are done. Else it finds what they wrote without a
  // wait of its own, as down's does with the lists of experts (experts/down_and_combine.cuh).
  bool starts_next_early = false;
};

void quantize_rows(const QuantizeRowsParams& params, ops::Stream& stream);

}  // namespace fathom::cuda
