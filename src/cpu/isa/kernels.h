#pragma once
// The single-threaded kernels that exist once per instruction set. Everything above them (splitting work,
// scratch, threads) is common code and calls through this table.
//
//   const KernelTable& kernels = kernels_for(detect_isa());
//   kernels.matmul(tile);
//
// Stateless, thread-safe. Plain types only: the files compiled for a newer instruction set must not
// instantiate inline library code, which the linker might then give to everybody.
//
// Order of sums: every dot product runs over k in steps of the vector width, lane l taking the elements
// k = l (mod width), and the lanes are added in a fixed tree at the end. That order is the same for one
// row and for many, which is what makes an output row independent of its neighbours, bit for bit.

#include <cstdint>

#include "cpu/integer/kernels.h"
#include "tensor/scale_block.h"

namespace fathom::cpu {

enum class WeightKind : uint8_t { kF32, kBf16, kF8, kI4, kU4 };

using tensor::kScaleBlock;
// Rows of x that one tile may have, and weight rows; they bound the workspace.
inline constexpr int64_t kTileTokens = 96;
inline constexpr int64_t kTileRows = 32;
inline constexpr int64_t kWorkspaceBytes = int64_t{768} << 10;
// Floats of memory that a quantised row of x takes, e4m3 or i8: it starts and ends on a vector boundary.
constexpr int64_t grid_row_floats(int64_t dim) { return (dim + 31) / 32 * 32; }

// Two integers of four bits (tensor::I4x2).
struct I4Pair {
  uint8_t bits;
};
// Of 0 to 15 (tensor::U4x2).
struct U4Pair {
  uint8_t bits;
};

// out[i][out_begin + r] (+)= dot(x[i], w[r]) for num_x <= kTileTokens rows of x. For f8 and i4, x holds rows that
// quantize_row or grid_row of the same table wrote. f8 weight rows share one row of scales unless the table takes more
// than kScaleBlock of them; each i4 row has its own. u4 weights are (q - zero point) * scale, which float holds.
struct MatmulTile {
  const float* const* x = nullptr;        // [num_x] rows of [in]
  const float* const* x_scale = nullptr;  // f8, i4: [num_x] rows of [ceil(in/128)]
  int64_t num_x = 0;
  WeightKind kind = WeightKind::kF32;
  const void* w = nullptr;  // [num_w, in], rows w_stride values apart
  int64_t w_stride = 0;
  const float* w_scale = nullptr;  // f8, i4: [ceil(in/128)], of the first weight row
  int64_t w_scale_stride =
      0;  // from there to the scales of the next 128 rows of the matrix; i4: of the next row
  // u4: f16[num_w, 2, in / zero_channels], scales and zero points of so many channels: 32, 64 or 128.
  const uint16_t* w_zeros = nullptr;
  int64_t zero_channels = 0;
  int64_t w_row = 0;  // of the matrix, the first weight row
  int64_t num_w = 0;  // at most direct_rows or wide_rows
  int64_t in = 0;
  float* const* out = nullptr;  // [num_x] rows
  int64_t out_begin = 0;
  bool accumulate = false;
  void* workspace = nullptr;  // kWorkspaceBytes, 64-byte aligned
  // Rows like these that are read next, to be fetched meanwhile. Null: those that follow in memory.
  const void* next_w = nullptr;
};

// Softmax state of a group of heads (or of queries of one head): row r has maximum max[r], sum of
// exponentials sum[r], weighted values acc[r].
struct SoftmaxState {
  float* max = nullptr;
  float* sum = nullptr;
  float* const* acc = nullptr;  // rows of [value_dim]
};

// One block of at most kKeyBlock keys against num_queries rows: scores, running softmax, weighted values.
inline constexpr int64_t kKeyBlock = 64;
inline constexpr int64_t kQueryBlock = 48;
struct AttentionBlock {
  const float* const* q = nullptr;      // [num_queries] rows of [key_dim]
  int64_t num_queries = 0;              // at most kQueryBlock
  const float* const* key = nullptr;    // [num_keys] rows of [key_dim]
  const float* const* value = nullptr;  // [num_keys] rows of [value_dim]
  int64_t num_keys = 0;
  int64_t key_dim = 0, value_dim = 0;
  float scale = 1.0f;
  // Bit j of visible[r] = query r sees key j. Null = everything is visible.
  const uint64_t* visible = nullptr;
  SoftmaxState state;
  float* scores = nullptr;  // workspace f32[kQueryBlock, kKeyBlock], 64-byte aligned
};

struct RmsNormRow {
  const float* x = nullptr;
  const void* weight = nullptr;  // f32 or bf16[dim]
  WeightKind weight_kind = WeightKind::kF32;
  float eps = 0;
  float* residual = nullptr;  // null allowed
  float* out = nullptr;
  int64_t dim = 0;
};

// A block of a row of logits to sample from.
inline constexpr int64_t kSampleBlock = 1024;
struct SampleTile {
  const float* logits = nullptr;
  int64_t num = 0;                // at most kSampleBlock
  float largest = 0, factor = 0;  // of ops::sample_weight()
  float* weights = nullptr;       // [num]
};
// Bins of falling weight, as many to each factor of two; one more holds what weighs nothing.
inline constexpr int32_t kSampleBinsPerOctave = 32, kNumSampleBins = 40 * kSampleBinsPerOctave;

struct KernelTable {
  // Up to this many rows of x a weight row is read straight from memory; above, tiles are widened first.
  int64_t direct_tokens = 0;
  // Weight rows of a tile at most, in the one and the other case. Where they are more than kScaleBlock, a tile begins
  // at a multiple of 16 rows of its matrix.
  int64_t direct_rows = kScaleBlock, wide_rows = kTileRows;
  void (*matmul)(const MatmulTile& tile) = nullptr;
  // q = round_e4m3(x / scale) in the form that matmul() reads, which only this table knows and which takes no more than
  // grid_row_floats(dim); scale per 128 channels (ops/quantize_fp8.h). q may be x.
  void (*quantize_row)(const float* x, int64_t dim, float* q, float* scale) = nullptr;
  // The same of values that are e4m3 already.
  void (*grid_row)(const uint8_t* x, int64_t dim, float* q) = nullptr;
  void (*attention_block)(const AttentionBlock& block) = nullptr;
  // Adds a finished partial state to a running one: both as in SoftmaxState, num_rows rows.
  void (*merge_softmax)(const SoftmaxState& into, const SoftmaxState& from, int64_t num_rows,
                        int64_t value_dim) = nullptr;
  void (*divide_row)(const float* x, float divisor, int64_t dim, float* out) = nullptr;
  void (*rms_norm_row)(const RmsNormRow& row) = nullptr;
  void (*silu_mul_row)(const float* gate, const float* up, int64_t dim, float* out) = nullptr;
  // out = (first ? 0 : out) + weight * x
  void (*add_scaled_row)(const float* x, float weight, bool first, int64_t dim,
                         float* out) = nullptr;
  void (*widen_row)(const void* x, WeightKind kind, int64_t dim, float* out) = nullptr;
  // To bf16, nearest even.
  void (*narrow_row)(const float* x, int64_t dim, uint16_t* out) = nullptr;
  // x * factor to e4m3, saturating, nearest even. REQUIRES: factor is a power of two or 0.
  void (*narrow_f8_row)(const float* x, float factor, int64_t dim, uint8_t* out) = nullptr;
  // e4m3 values times the scale of their 128 channels; scale: null = 1.
  void (*widen_f8_row)(const uint8_t* x, const float* scale, int64_t dim, float* out) = nullptr;
  // Of a row; NaN does not count.
  float (*largest_magnitude)(const float* x, int64_t dim) = nullptr;
  // Smallest and largest element, and whether all are below +inf and none is NaN.
  bool (*range_row)(const float* x, int64_t dim, float* min, float* max) = nullptr;
  // Sum of exp(scale * (x - shift)).
  float (*sum_exp_row)(const float* x, float shift, float scale, int64_t dim) = nullptr;
  // Writes the weights and returns the sum of their shares (ops/sample_weight.h).
  uint64_t (*sample_weights)(const SampleTile& tile) = nullptr;
  // bins[i] = the bin of token i, rising as the logit falls; kNumSampleBins for a weight of 0.
  void (*sample_bins)(const SampleTile& tile, int32_t* bins) = nullptr;
  // Sets weights of logits below `level`, and weights below `min_weight`, to 0; returns the sum of shares.
  uint64_t (*keep_weights)(const SampleTile& tile, float level, float min_weight) = nullptr;
  // Reads floats and returns their sum: nothing but loads, for measuring bandwidth. The count is
  // a multiple of 128.
  float (*read_floats)(const float* data, int64_t count) = nullptr;
  const integer::Kernels* i8 = nullptr;  // of i8 weights
  // Of i4 and u4 weights and the rows of x that they read. Null = this table itself.
  const KernelTable* i4 = nullptr;
};

const KernelTable& portable_kernels();
#if defined(__x86_64__)
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const KernelTable& avx512_bf16_kernels();
const KernelTable& amx_kernels();
#endif

}  // namespace fathom::cpu
