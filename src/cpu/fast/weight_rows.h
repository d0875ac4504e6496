#pragma once
// What linear, head_linear, moe_gate and moe_experts share above the kernels: a weight matrix as the
// kernels read it, rows of x prepared for it, and a product over a range of its rows.
//
//   const WeightRows weight = WeightRows::of(args.weight, /*matrix=*/0);
//   multiply(kernels, weight, {.x = rows, .num_x = n, .out = outs}, begin, end);
//
// Plain views; thread-safe.

#include <algorithm>
#include <cstdint>

#include "cpu/isa/kernels.h"
#include "ops/linear.h"

namespace fathom::cpu {

using tensor::num_scale_blocks;

WeightKind weight_kind(tensor::DType dtype);

// Matrix [rows, in] with contiguous rows; f8 and i8 scales f32[ceil(rows/128), ceil(in/128)], or i8 scales f32[rows],
// or i4 scales f32[rows, ceil(in/128)], or u4 scales with zero points f16[rows, 2 * in / zero_channels].
struct WeightRows {
  WeightKind kind = WeightKind::kF32;  // where it is not i8
  bool is_i8 = false;
  ops::ScaleForm form = ops::ScaleForm::kNone;
  const void* data = nullptr;
  const float* scale = nullptr;
  const uint16_t* zeros = nullptr;  // u4: scales and zero points
  int64_t zero_channels = 0;
  int64_t rows = 0, in = 0;

  // Matrix `index` of a stack: all leading axes flattened, the last two are the matrix.
  static WeightRows of(const ops::Weight& weight, int64_t index = 0);
  const void* row(int64_t r) const;
};

// Pointers to the rows of x that a product reads. For quantised weights they point to quantised values, whose form only
// the kernels know.
struct XRows {
  const float* const* values = nullptr;
  const float* const* scales = nullptr;  // with quantised weights only
  int64_t count = 0;

  XRows slice(int64_t begin, int64_t end) const {
    return {values + begin, scales == nullptr ? nullptr : scales + begin, end - begin};
  }
};

// Room for a row as products with quantised weights read it.
struct QuantisedRow {
  float* q = nullptr;      // [grid_row_floats(dim)]
  float* scale = nullptr;  // [ceil(dim / 128)]
};
// As this weight reads it. to.q may be x.
void quantize_row_for(const KernelTable& kernels, const ops::Weight& weight, const float* x,
                      const QuantisedRow& to);
// Row of x in that form, whether x came quantised (then the scales are x's own and to.scale stays as it is) or is
// quantised now.
void quantised_row(const KernelTable& kernels, const ops::Weight& weight, const ops::Activation& x,
                   int64_t row, const QuantisedRow& to);

// out[i][out_offset + r] (+)= dot(x[i], weight row r) for r in [begin, end), on this thread.
struct Product {
  XRows x;
  float* const* out = nullptr;
  int64_t out_offset = 0;
  bool accumulate = false;
  void* workspace = nullptr;
  const void* next_w = nullptr;  // weights that this thread reads next, see MatmulTile
};
void multiply(const KernelTable& kernels, const WeightRows& weight, const Product& product,
              int64_t begin, int64_t end);

// Rows of x cut into groups of nearly the same size, at most kTileTokens each.
struct TokenGroups {
  int64_t tokens = 0, count = 0;
  explicit TokenGroups(int64_t tokens)
      : tokens(tokens), count((tokens + kTileTokens - 1) / kTileTokens) {}
  // First row of group g; begin(count) is the number of rows.
  int64_t begin(int64_t g) const { return tokens * g / count; }
};

// Weight rows per task such that each of `threads` gets several tasks (other programs may slow one
// down) and a task is worth claiming. Multiple of 16.
int64_t rows_per_task(int64_t rows, int64_t in, int64_t num_x, int threads);

// Weight rows of a task in which rows of x pass many times: several tiles, because the kernels fetch the tile that
// follows in memory, and at the end of a task that is another thread's.
inline constexpr int64_t kWideTaskRows = 128;

// The same where there are `groups` such products: so few rows that each thread gets four tasks. Multiple of 32, at
// most `most`.
int64_t wide_rows_per_task(int64_t rows, int64_t groups, int threads, int64_t most);

}  // namespace fathom::cpu
