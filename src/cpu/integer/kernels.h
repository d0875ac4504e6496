#pragma once
// The single-threaded kernels of products with i8 weights (ops/linear.h), which exist once per instruction set. All
// have the same bits: sums of integers are exact in any order, and what follows them is written operation by operation.
//
//   table.quantize_row(x, in, /*channels=*/in, q, &scale);
//   table.matmul({.x = rows, .x_scale = scales, .num_x = n, .w = w, ...});
//
// Stateless, thread-safe. Plain types only, for the reason that cpu/isa/kernels.h gives.

#include <cstdint>

#include "tensor/scale_block.h"

namespace fathom::cpu::integer {

using tensor::kScaleBlock;

// Bytes of a quantised row: zeros follow the last value up to a whole vector.
constexpr int64_t row_bytes(int64_t dim) { return (dim + 63) / 64 * 64; }

// out[i][out_begin + r] (+)= x[i] * w[r]
struct Tile {
  const int8_t* const* x = nullptr;       // [num_x] rows that quantize_row wrote
  const float* const* x_scale = nullptr;  // [num_x] rows of [ceil(in/128)], or of one scale
  int64_t num_x = 0;
  const int8_t* w = nullptr;  // [num_w, in], rows w_stride elements apart
  int64_t w_stride = 0;
  // Of blocks: [ceil(in/128)], of the first row, which all share unless the kernels take more than kScaleBlock rows;
  // of channels: [num_w].
  const float* w_scale = nullptr;
  int64_t w_scale_stride = 0;  // from there to the scales of the next 128 rows of the matrix
  int64_t w_row = 0;           // of the matrix, the first row
  bool of_channels = false;
  int64_t num_w = 0, in = 0;
  float* const* out = nullptr;  // [num_x] rows
  int64_t out_begin = 0;
  bool accumulate = false;
  void* workspace = nullptr;  // for kernels that take more than kScaleBlock rows: as MatmulTile's
};

struct Kernels {
  void (*matmul)(const Tile& tile) = nullptr;
  // q: row_bytes(dim) bytes, which may lie where x begins; a scale for so many channels each.
  void (*quantize_row)(const float* x, int64_t dim, int64_t channels, int8_t* q,
                       float* scale) = nullptr;
  int64_t max_rows = kScaleBlock;  // of w in a tile
};

extern const Kernels kPortable;
#if defined(__x86_64__)
extern const Kernels kAvx2;
extern const Kernels kAvx512;
extern const Kernels kAvx512Vnni;
#endif

}  // namespace fathom::cpu::integer
