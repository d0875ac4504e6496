#pragma once
// What a block of fast absorbed attention (mla_absorbed.cu) does with 32 of its cache rows: copies, scores, softmax and
// weighted values of its query rows. Rows in f8 become bf16 here for 64 query rows; for 16 absorbed_f8.cuh reads them.
// Internal to cuda/attention/.

#include "cuda/attention/mla_absorbed.cuh"
#include "cuda/attention/mla_absorbed.h"
#include "cuda/device/softmax.cuh"
#include "cuda/mma/warp.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda::absorbed {

inline constexpr int kThreads = 256;
inline constexpr int kTileRows = 32, kSplitRows = 128, kCluster = 8;
inline constexpr int kChunkRows = kSplitRows * kCluster;
inline constexpr int kSlice = kLatent / kCluster;    // columns that a block merges, and a warp's
inline constexpr int kQuarterSteps = kDim / 16 / 4;  // steps of 16 of the inner dimension, a warp's
// In shared memory: rows start in eight bank groups in turn.
inline constexpr int kRowBytes = kDim * 2 + 16;
inline constexpr int kTileBytes = kTileRows * kRowBytes;
inline constexpr int kF8RowBytes = 656, kF8ScaleOffset = 512, kF8RopeOffset = 528;
inline constexpr int kWeightStride = kTileRows + 8;          // bf16 weights of a query row
inline constexpr int kWeightScaleBytes = 4 * kTileRows * 2;  // of a tile: absorbed_f8.cuh

template <int kMTiles, bool kIsF8>
struct BlockLayout {
  static constexpr int kRows = 16 * kMTiles;
  static constexpr bool kConverts = kIsF8 && kMTiles > 1;  // absorbed_f8.cuh has what reads f8
  static constexpr bool kReadsF8 = kIsF8 && !kConverts;
  static constexpr int kStages = kMTiles > 1 ? 3 : kIsF8 ? 4 : 2;
  static constexpr int kSourceRowBytes = kIsF8 ? kF8RowBytes : kDim * 2;
  static constexpr int kStageRowBytes = kIsF8 ? kF8RowBytes : kRowBytes;
  static constexpr int kStageBytes = kTileRows * kStageRowBytes;
  static constexpr int kScoreStride = kMTiles == 1 ? 40 : 36;

  // The block's weighted values lie over stages, tile and scores when those are done with.
  static constexpr int kTile = kStages * kStageBytes;  // of f8 rows, where they are converted
  static constexpr int kScores = kTile + (kConverts ? kTileBytes : 0);
  static constexpr int kQuery = kScores + 4 * kRows * kScoreStride * 4;
  static constexpr int kWeights = kQuery + kRows * kRowBytes;
  static constexpr int kKvRows = kWeights + kRows * kWeightStride * 2;
  static constexpr int kStats = kKvRows + kSplitRows * 4;
  static constexpr int kFactors = kStats + kRows * 8;
  static constexpr int kWeightScales = kFactors + kRows * 4 + 16;  // of f8
  static constexpr int kBytes = kWeightScales + kWeightScaleBytes;
  static_assert(kRows * kLatent * 4 <= kQuery && kTile % 16 == 0 && kScores % 16 == 0);
  static_assert(kBytes <= (kMTiles == 1 ? 113 : 227) * 1024);
};

// Column of weighted value `column` of a row: rows that follow each other start in other banks.
__device__ __forceinline__ int swizzled(int row, int column) { return column ^ (row % 8 * 8); }

// Starts copies of the block's query rows to shared memory, by kLoading threads; rows that are nobody's become zeros.
template <class Layout, int kLoading = kThreads>
__device__ __forceinline__ void load_queries(const AbsorbedParams& p, const QueryGroup& group,
                                             char* shared, int thread) {
  constexpr int kRowThreads = kLoading / Layout::kRows;
  const int row = thread / kRowThreads;
  const bool exists = row < group.num_rows();
  const int token = group.first_token + (exists ? row / group.num_heads : 0);
  const int head = group.first_head + (exists ? row % group.num_heads : 0);
  const Bf16* const latent = p.q_latent + (int64_t{token} * p.heads + head) * kLatent;
  const Bf16* const rope = p.q_rope + token * p.q_rope_token_stride + head * p.q_rope_head_stride;
  char* const to = shared + Layout::kQuery + row * kRowBytes;
#pragma unroll
  for (int i = thread % kRowThreads; i < kLatent / 8; i += kRowThreads)
    copy_async_16(shared_address(to) + i * 16, latent + i * 8, exists);
  if (p.q_rope_is_aligned) {
    for (int i = thread % kRowThreads; i < kRope / 8; i += kRowThreads)
      copy_async_16(shared_address(to) + (kLatent + i * 8) * 2, rope + i * 8, exists);
  } else {
    for (int i = thread % kRowThreads; i < kRope; i += kRowThreads)
      reinterpret_cast<Bf16*>(to)[kLatent + i] = exists ? rope[i] : Bf16{0};
  }
}

// The query rows as operands: of one tile of 16 rows each warp keeps its quarter, of four all warps read them
// from shared memory.
template <int kMTiles>
struct Queries {
  uint32_t address;  // of this lane's row and half of a step

  __device__ __forceinline__ void init(const char* rows, int) {
    const int lane = threadIdx.x % 32;
    address = shared_address(rows) + lane % 16 * kRowBytes + lane / 16 * 16;
  }
  __device__ __forceinline__ void get(int m_tile, int quarter, int step, uint32_t (&a)[4]) const {
    ldmatrix_x4(a, address + m_tile * 16 * kRowBytes + (quarter * kQuarterSteps + step) * 32);
  }
};

template <>
struct Queries<1> {
  uint32_t fragments[kQuarterSteps][4];

  __device__ __forceinline__ void init(const char* rows, int quarter) {
    const int lane = threadIdx.x % 32;
    const uint32_t address = shared_address(rows) + lane % 16 * kRowBytes + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < kQuarterSteps; ++step)
      ldmatrix_x4(fragments[step], address + (quarter * kQuarterSteps + step) * 32);
  }
  __device__ __forceinline__ void get(int, int, int step, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = fragments[step][i];
  }
};

// Copies the rows of a tile to its stage, eight threads a row; rows behind the end become zeros.
template <class Layout>
__device__ __forceinline__ void load_tile(const AbsorbedParams& p, char* shared, int tile) {
  constexpr int kVectors = Layout::kSourceRowBytes / 16, kRowThreads = kThreads / kTileRows;
  const int row = threadIdx.x / kRowThreads, first = threadIdx.x % kRowThreads;
  const int32_t kv_row =
      reinterpret_cast<const int32_t*>(shared + Layout::kKvRows)[tile * kTileRows + row];
  const char* const from =
      p.cache.data + int64_t{max(kv_row, 0)} * Layout::kSourceRowBytes + first * 16;
  const uint32_t to = shared_address(shared) + tile % Layout::kStages * Layout::kStageBytes +
                      row * Layout::kStageRowBytes + first * 16;
#pragma unroll
  for (int i = 0; i < kVectors; i += kRowThreads)
    if (i + first < kVectors) copy_async_16(to + i * 16, from + i * 16, kv_row >= 0);
}

// A tile of f8 rows as bf16, exactly: scales are powers of two. Zeros of rows behind the end stay zeros.
__device__ __forceinline__ void dequantise_tile(const char* stage, char* tile) {
#pragma unroll
  for (int i = threadIdx.x; i < kTileRows * kLatent / 16; i += kThreads) {
    const int row = i % kTileRows, vector = i / kTileRows;
    const char* const from = stage + row * kF8RowBytes;
    const uint4 raw = *reinterpret_cast<const uint4*>(from + vector * 16);
    const float scale = reinterpret_cast<const float*>(from + kF8ScaleOffset)[vector / 8];
    uint4 vectors[2];
    dequantise(raw, scale, vectors);
    auto* const to = reinterpret_cast<uint4*>(tile + row * kRowBytes + vector * 32);
    to[0] = vectors[0];
    to[1] = vectors[1];
  }
  for (int i = threadIdx.x; i < kTileRows * kRope / 8; i += kThreads) {
    const int row = i % kTileRows, vector = i / kTileRows;
    *reinterpret_cast<uint4*>(tile + row * kRowBytes + kLatent * 2 + vector * 16) =
        *reinterpret_cast<const uint4*>(stage + row * kF8RowBytes + kF8RopeOffset + vector * 16);
  }
}

// Scores of a warp: all query rows, a quarter of the inner dimension, kHalves times 16 cache rows from first_row on.
template <int kMTiles, class Layout, int kHalves>
__device__ __forceinline__ void score_tile(const Queries<kMTiles>& queries, uint32_t tile,
                                           float* scores, int quarter, int first_row) {
  const int lane = threadIdx.x % 32;
  const uint32_t keys = tile + (first_row + lane / 16 * 8 + lane % 8) * kRowBytes +
                        lane / 8 % 2 * 16 + quarter * kQuarterSteps * 32;
  float sums[kHalves][kMTiles][2][4] = {};
#pragma unroll
  for (int step = 0; step < kQuarterSteps; ++step) {
    uint32_t b[kHalves][4];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) ldmatrix_x4(b[h], keys + h * 16 * kRowBytes + step * 32);
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      uint32_t a[4];
      queries.get(m, quarter, step, a);
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        mma_bf16(sums[h][m][0], a, {b[h][0], b[h][1]});
        mma_bf16(sums[h][m][1], a, {b[h][2], b[h][3]});
      }
    }
  }
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // rows g, g + 8 of both halves of the 16 cache rows
        const int row = quarter * Layout::kRows + m * 16 + g + i % 2 * 8;
        *reinterpret_cast<float2*>(scores + row * Layout::kScoreStride + first_row + h * 16 +
                                   i / 2 * 8 + 2 * t) = {sums[h][m][i / 2][i % 2 * 2],
                                                         sums[h][m][i / 2][i % 2 * 2 + 1]};
      }
    }
  }
}

// Softmax of a query row over a tile, by kRowThreads that follow each other; `thread`: among those of all rows. Sums of
// two columns each are added as one tree, so a row's bits do not depend on how many threads it has.
template <int kRowThreads, class Layout>
struct RowSoftmax {
  static constexpr int kColumns = kTileRows / kRowThreads;
  static constexpr int kVector = kColumns < 4 ? kColumns : 4;  // scores of a load
  struct alignas(kVector * 4) Vector {
    float x[kVector];
  };

  const int thread;
  int query = 0;  // of the sequence
  uint64_t mask = 0;
  float max, sums[kColumns / 2];

  __device__ __forceinline__ explicit RowSoftmax(int index) : thread(index) {}
  __device__ __forceinline__ int row() const { return thread / kRowThreads; }
  __device__ __forceinline__ bool is_first() const { return thread % kRowThreads == 0; }

  __device__ __forceinline__ void init(const AbsorbedParams& p, const QueryGroup& group) {
    const int token = min(row() / group.num_heads, group.num_tokens - 1);
    query = group.first_query + token;
    mask = group.is_tree ? p.tree_mask[group.first_token + token] : 0;
  }

  __device__ __forceinline__ void begin_split() {
    max = minus_infinity();
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
  }

  // Maximum and sum of the row.
  __device__ __forceinline__ float2 stats() const {
    float tree[kColumns / 2];
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) tree[i] = sums[i];
#pragma unroll
    for (int width = 1; width < kColumns / 2; width *= 2) {
#pragma unroll
      for (int i = 0; i < kColumns / 2; i += 2 * width) tree[i] += tree[i + width];
    }
#pragma unroll
    for (int lanes = 1; lanes < kRowThreads; lanes *= 2)
      tree[0] += __shfl_xor_sync(0xffffffffu, tree[0], lanes);
    return {max, tree[0]};
  }

  // Scores to weights. `tile_row`: the first one's number.
  __device__ __forceinline__ void step(const QueryGroup& group, float scale, int tile_row,
                                       const float* scores, Bf16* weights, float* factors) {
    const int first = thread % kRowThreads * kColumns;
    const int end = group.end();
    float x[kColumns], tile_max = minus_infinity();
#pragma unroll
    for (int i = 0; i < kColumns; i += kVector) {
      Vector parts[4];
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter)
        parts[quarter] = *reinterpret_cast<const Vector*>(
            scores + (quarter * Layout::kRows + row()) * Layout::kScoreStride + first + i);
#pragma unroll
      for (int j = 0; j < kVector; ++j)
        x[i + j] = ((parts[0].x[j] + parts[1].x[j]) + (parts[2].x[j] + parts[3].x[j])) * scale;
    }
    if (tile_row + kTileRows > min(end, group.first_partial_row())) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int row = tile_row + first + i;
        if (row >= end || !is_visible(group, query, mask, row)) x[i] = minus_infinity();
      }
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) tile_max = fmaxf(tile_max, x[i]);
#pragma unroll
    for (int lanes = 1; lanes < kRowThreads; lanes *= 2)
      tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, lanes));
    const float new_max = fmaxf(max, tile_max), from = finite_max(new_max);
    const float factor = exp2_fast(max - from);
    max = new_max;
    if (is_first()) factors[row()] = factor;
#pragma unroll
    for (int i = 0; i < kColumns; i += 2) {
      const uint32_t pair = floats_to_bf16x2(exp2_fast(x[i] - from), exp2_fast(x[i + 1] - from));
      *reinterpret_cast<uint32_t*>(weights + row() * kWeightStride + first + i) = pair;
      sums[i / 2] = __fmaf_rn(sums[i / 2], factor, bf16x2_low(pair) + bf16x2_high(pair));
    }
  }
};

// Values of rows that some query does not see must not reach it as 0 * NaN. Those that see such a row are NaN by
// their scores. By kClearing threads.
template <int kClearing>
__device__ __forceinline__ void clear_non_finite(char* tile, int first_row, int thread) {
  for (int i = thread; i < (kTileRows - first_row) * kLatent / 2; i += kClearing) {
    auto& word = *reinterpret_cast<uint32_t*>(tile + (first_row + i / (kLatent / 2)) * kRowBytes +
                                              i % (kLatent / 2) * 4);
    uint32_t pair = word;
    if ((pair & 0x7f80u) == 0x7f80u) pair &= 0xffff0000u;
    if ((pair & 0x7f800000u) == 0x7f800000u) pair &= 0xffffu;
    if (pair != word) word = pair;
  }
}

// A warp's 64 columns of the weighted values, all query rows.
template <int kMTiles>
__device__ __forceinline__ void add_values(uint32_t tile, const Bf16* weights, const float* factors,
                                           float (&values)[kMTiles][8][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
  const uint32_t from = tile + lane % 16 * kRowBytes + warp * kSlice * 2 + lane / 16 * 16;
  const uint32_t weight = shared_address(weights) + (lane % 16 * kWeightStride + lane / 16 * 8) * 2;
  uint32_t a[kMTiles][2][4];
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
    const float top = factors[m * 16 + g], bottom = factors[m * 16 + g + 8];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      values[m][n][0] *= top;
      values[m][n][1] *= top;
      values[m][n][2] *= bottom;
      values[m][n][3] *= bottom;
    }
#pragma unroll
    for (int step = 0; step < 2; ++step)
      ldmatrix_x4(a[m][step], weight + (m * 16 * kWeightStride + step * 16) * 2);
  }
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, from + step * 16 * kRowBytes + n * 16);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        mma_bf16(values[m][n], a[m][step], {b[0], b[1]});
        mma_bf16(values[m][n + 1], a[m][step], {b[2], b[3]});
      }
    }
  }
}

// The first column of a thread's values n of a row, which are two: of its warp's 64.
template <bool kIsF8>
__device__ __forceinline__ int value_column(int n, int lane) {
  const int t = lane % 4;
  return kIsF8 ? n / 2 * 16 + t * 4 + n % 2 * 2 : n * 8 + t * 2;
}

// Puts a warp's columns where the block that merges them finds them: f32[8, rows, 64].
template <int kMTiles, bool kIsF8>
__device__ __forceinline__ void store_values(const float (&values)[kMTiles][8][4], float* to) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + g + half * 8, column = value_column<kIsF8>(n, lane);
        *reinterpret_cast<float2*>(to + (warp * 16 * kMTiles + row) * kSlice +
                                   swizzled(row, column)) = {values[m][n][half * 2],
                                                             values[m][n][half * 2 + 1]};
      }
    }
  }
}

}  // namespace fathom::cuda::absorbed
