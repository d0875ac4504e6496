#pragma once
// Absorbed attention of 16 heads over bf16 rows whose splits of 128 rows are parts of their own (absorbed_parts.cuh): a
// cluster of two blocks has a split, each block some columns of its rows.
//
// Of a split's scores a block has the two quarters of the inner dimension that its columns are, and sends their sums to
// the other; each then has all weights and adds up the values of its columns. So a split's rows are read once, by two
// multiprocessors, all copies are under way at once, and a warp begins with its own 16 rows. Every sum is taken in the
// order of absorbed_split.cuh. Internal to cuda/attention/.

#include "cuda/attention/absorbed_parts.cuh"
#include "cuda/attention/absorbed_tile.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/send.cuh"

namespace fathom::cuda::absorbed {

inline constexpr int kShare = 2;  // blocks of a split

struct SharedSplitLayout {
  static constexpr int kScoreColumns = kDim / kShare, kValueColumns = kLatent / kShare;
  static constexpr int kQuarters = 4 / kShare;  // of the inner dimension
  // Block i's columns: from kValueColumns * i to kScoreColumns * (i + 1), as the last has most.
  static constexpr int kColumns = kValueColumns + kRope;
  static constexpr int kRowBytes = kColumns * 2 + 16;  // rows start in eight bank groups in turn
  static constexpr int kQueryBytes = kScoreColumns * 2 + 16;
  static constexpr int kScoreStride = kSplitRows + 8, kWeightStride = kSplitRows + 8;
  static constexpr int kTiles = kSplitRows / kTileRows;

  static constexpr int kScores = kSplitRows * kRowBytes;  // f32[share, 16, kScoreStride]
  static constexpr int kQuery = kScores + kShare * kStreamRows * kScoreStride * 4;
  static constexpr int kWeights = kQuery + kStreamRows * kQueryBytes;
  static constexpr int kFactors = kWeights + kStreamRows * kWeightStride * 2;  // f32[tiles, 16]
  // Barriers: the queries, the other block's scores.
  static constexpr int kBarriers = kFactors + kTiles * kStreamRows * 4;
  static constexpr int kBytes = kBarriers + 16;
  static_assert(kThreads / 32 * 16 == kSplitRows && kBytes <= 113 * 1024);
};

struct SharedSplit {
  using Layout = SharedSplitLayout;
  static constexpr int kSteps = Layout::kQuarters * kQuarterSteps;

  const AbsorbedParams& p;
  char* const shared;
  const uint32_t queries_came, scores_came;
  const int rank, warp, lane;

  __device__ __forceinline__ SharedSplit(const AbsorbedParams& params, char* memory)
      : p(params),
        shared(memory),
        queries_came(shared_address(memory + Layout::kBarriers)),
        scores_came(queries_came + 8),
        rank(static_cast<int>(blockIdx.x) % kShare),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32) {}

  // By one warp; a cluster's arrival follows.
  __device__ __forceinline__ void init_barriers() const {
    if (lane == 0) {
      barrier_init(queries_came, 1);
      barrier_init(scores_came, 1);
      barriers_are_ready();
    }
    __syncwarp();
  }
  // By the warp that has initialised the barriers, a lane a head.
  __device__ __forceinline__ void load_queries(int token) const {
    if (lane >= kStreamRows) return;
    const int columns = min(Layout::kScoreColumns, kLatent - rank * Layout::kScoreColumns);
    const Bf16* const latent =
        p.q_latent + (int64_t{token} * kStreamRows + lane) * kLatent + rank * Layout::kScoreColumns;
    const Bf16* const rope = p.q_rope + token * p.q_rope_token_stride + lane * p.q_rope_head_stride;
    char* const to = shared + Layout::kQuery + lane * Layout::kQueryBytes;
    const bool has_rope = rank == kShare - 1;
    const bool copies_rope = has_rope && p.q_rope_is_aligned;
    if (lane == 0)
      barrier_expect(queries_came, kStreamRows * (columns + (copies_rope ? kRope : 0)) * 2);
    __syncwarp((1u << kStreamRows) - 1);
    copy_row(shared_address(to), latent, columns * 2, queries_came);
    if (copies_rope) copy_row(shared_address(to) + columns * 2, rope, kRope * 2, queries_came);
    if (has_rope && !copies_rope) {
#pragma unroll 1
      for (int i = 0; i < kRope; ++i) reinterpret_cast<Bf16*>(to)[columns + i] = rope[i];
    }
  }
  // This warp's 16 rows; those behind the end become zeros.
  __device__ __forceinline__ void load_rows(const QueryGroup& group, int first_row) const {
    const int row = first_row + warp * 16 + lane % 16;
    const int32_t mine = row < group.end() ? kv_row_at(p, group.seq, row) : -1;
    const int vectors = (Layout::kScoreColumns * (rank + 1) - Layout::kValueColumns * rank) / 8;
    const char* const from = p.cache.data + rank * Layout::kValueColumns * 2 + lane % 8 * 16;
    const uint32_t to =
        shared_address(shared) + (warp * 16 + lane / 8) * Layout::kRowBytes + lane % 8 * 16;
#pragma unroll
    for (int pass = 0; pass < 4; ++pass) {
      const int32_t kv_row = __shfl_sync(0xffffffffu, mine, pass * 4 + lane / 8);
      const char* const row_from = from + int64_t{max(kv_row, 0)} * (kDim * 2);
#pragma unroll
      for (int i = 0; i < Layout::kColumns / 8; i += 8)
        if (i + lane % 8 < vectors)
          copy_async_16(to + pass * 4 * Layout::kRowBytes + i * 16, row_from + i * 16, kv_row >= 0);
    }
    commit_copies();
  }
  __device__ __forceinline__ void get_queries(uint32_t (&queries)[kSteps][4]) const {
    const uint32_t from =
        shared_address(shared + Layout::kQuery) + lane % 16 * Layout::kQueryBytes + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) ldmatrix_x4(queries[step], from + step * 32);
  }
  // Of this warp's rows and the block's columns, to both blocks.
  __device__ __forceinline__ void score(const uint32_t (&queries)[kSteps][4]) const {
    const int first = rank * (Layout::kScoreColumns - Layout::kValueColumns);
    const uint32_t keys = shared_address(shared) +
                          (warp * 16 + lane / 16 * 8 + lane % 8) * Layout::kRowBytes +
                          lane / 8 % 2 * 16 + first * 2;
    float sums[Layout::kQuarters][2][4] = {};
#pragma unroll
    for (int step = 0; step < kQuarterSteps; ++step) {
#pragma unroll
      for (int quarter = 0; quarter < Layout::kQuarters; ++quarter) {
        const int at = quarter * kQuarterSteps + step;
        uint32_t b[4];
        ldmatrix_x4(b, keys + at * 32);
        mma_bf16(sums[quarter][0], queries[at], {b[0], b[1]});
        mma_bf16(sums[quarter][1], queries[at], {b[2], b[3]});
      }
    }
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // heads g, g + 8 of both halves of the 16 rows
      const int n = i / 2, c = i % 2 * 2;
      const float2 two = {sums[0][n][c] + sums[1][n][c], sums[0][n][c + 1] + sums[1][n][c + 1]};
      float* const to = reinterpret_cast<float*>(shared + Layout::kScores) +
                        (rank * kStreamRows + g + i % 2 * 8) * Layout::kScoreStride + warp * 16 +
                        i / 2 * 8 + 2 * t;
      *reinterpret_cast<float2*>(to) = two;
      send_two(shared_address(to), scores_came, rank ^ 1, two);
    }
  }
  // Weights of all tiles, factors of what comes before each, and the part's statistics.
  __device__ __forceinline__ void weigh(const QueryGroup& group, uint64_t mask, int first_row,
                                        int num_tiles, int part) const {
    constexpr int kTiles = Layout::kTiles;
    const int row = threadIdx.x / 16, column = threadIdx.x % 16 * 2;
    const auto* const scores = reinterpret_cast<const float*>(shared + Layout::kScores) +
                               row * Layout::kScoreStride + column;
    auto* const weights = reinterpret_cast<Bf16*>(shared + Layout::kWeights);
    auto* const factors = reinterpret_cast<float*>(shared + Layout::kFactors);
    float x[kTiles][2], tops[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      float2 parts[kShare];
#pragma unroll
      for (int i = 0; i < kShare; ++i)
        parts[i] = *reinterpret_cast<const float2*>(
            scores + i * kStreamRows * Layout::kScoreStride + tile * kTileRows);
      x[tile][0] = (parts[0].x + parts[1].x) * p.scale;
      x[tile][1] = (parts[0].y + parts[1].y) * p.scale;
      const int tile_row = first_row + tile * kTileRows;
      if (tile_row + kTileRows > min(group.end(), group.first_partial_row())) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int at = tile_row + column + i;
          if (at >= group.end() || !is_visible(group, group.first_query, mask, at))
            x[tile][i] = minus_infinity();
        }
      }
      tops[tile] = fmaxf(fmaxf(minus_infinity(), x[tile][0]), x[tile][1]);
    }
#pragma unroll
    for (int lanes = 1; lanes < 16; lanes *= 2) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        tops[tile] = fmaxf(tops[tile], __shfl_xor_sync(0xffffffffu, tops[tile], lanes));
    }
    float top = minus_infinity(), sum = 0.0f;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile >= num_tiles) break;
      const float new_top = fmaxf(top, tops[tile]), from = finite_max(new_top);
      const float factor = exp2_fast(top - from);
      top = new_top;
      if (column == 0) factors[tile * kStreamRows + row] = factor;
      const uint32_t pair =
          floats_to_bf16x2(exp2_fast(x[tile][0] - from), exp2_fast(x[tile][1] - from));
      *reinterpret_cast<uint32_t*>(weights + row * Layout::kWeightStride + tile * kTileRows +
                                   column) = pair;
      sum = __fmaf_rn(sum, factor, bf16x2_low(pair) + bf16x2_high(pair));
    }
#pragma unroll
    for (int lanes = 1; lanes < 16; lanes *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    const int slice = column / 2;  // of the block's
    if (slice < kCluster / kShare)
      p.stats[PartsPlace::at(part, rank * (kCluster / kShare) + slice, row)] = {top, sum};
  }
  // Values of rows that the query does not see, as clear_non_finite() has them.
  __device__ __forceinline__ void clear_unseen(const QueryGroup& group, int first_row) const {
    const int first = max(0, group.first_partial_row() - first_row);
    const int rows = min(kSplitRows, group.end() - first_row) - first;
    constexpr int kWords = Layout::kValueColumns / 2;
    for (int i = threadIdx.x; i < rows * kWords; i += kThreads) {
      auto& word = *reinterpret_cast<uint32_t*>(shared + (first + i / kWords) * Layout::kRowBytes +
                                                i % kWords * 4);
      uint32_t pair = word;
      if ((pair & 0x7f80u) == 0x7f80u) pair &= 0xffff0000u;
      if ((pair & 0x7f800000u) == 0x7f800000u) pair &= 0xffffu;
      if (pair != word) word = pair;
    }
  }
  // A warp's columns of the part.
  __device__ __forceinline__ void add_values(int num_tiles, int part) const {
    constexpr int kWarpColumns = Layout::kValueColumns / 8, kVectors = kWarpColumns / 8;
    const int g = lane / 4, t = lane % 4;
    const uint32_t from = shared_address(shared) + lane % 16 * Layout::kRowBytes +
                          warp * kWarpColumns * 2 + lane / 16 * 16;
    const uint32_t weight = shared_address(shared + Layout::kWeights) +
                            (lane % 16 * Layout::kWeightStride + lane / 16 * 8) * 2;
    const auto* const factors = reinterpret_cast<const float*>(shared + Layout::kFactors);
    float values[kVectors][4] = {};
#pragma unroll
    for (int tile = 0; tile < Layout::kTiles; ++tile) {
      if (tile >= num_tiles) break;
      const float top = factors[tile * kStreamRows + g],
                  bottom = factors[tile * kStreamRows + g + 8];
#pragma unroll
      for (int n = 0; n < kVectors; ++n) {
        values[n][0] *= top;
        values[n][1] *= top;
        values[n][2] *= bottom;
        values[n][3] *= bottom;
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const int row = tile * kTileRows + step * 16;
        uint32_t a[4];
        ldmatrix_x4(a, weight + row * 2);
#pragma unroll
        for (int n = 0; n < kVectors; n += 2) {
          uint32_t b[4];
          ldmatrix_x4_trans(b, from + row * Layout::kRowBytes + n * 16);
          mma_bf16(values[n], a, {b[0], b[1]});
          mma_bf16(values[n + 1], a, {b[2], b[3]});
        }
      }
    }
    const int column = rank * Layout::kValueColumns + warp * kWarpColumns;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* const to = p.values + PartsPlace::at(part, column / kSlice, g + half * 8) * kSlice +
                        column % kSlice + t * 2;
#pragma unroll
      for (int n = 0; n < kVectors; ++n)
        *reinterpret_cast<float2*>(to + n * 8) = {values[n][half * 2], values[n][half * 2 + 1]};
    }
  }
};

}  // namespace fathom::cuda::absorbed
