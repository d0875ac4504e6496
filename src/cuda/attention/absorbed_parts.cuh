#pragma once
// Attention whose sums of parts stay in scratch for the kernel behind it, so that its blocks need not wait for each
// other: what leaves them, and what adds them up.
//
//   PartsPlace::leave<kIsF8>(p, unit, node);                      // a stream's unit; clusters leave their chunks alike
//   const TokenParts parts = TokenParts::of(p, stream_blocks, token);                       // all lanes of a warp
//   const uint32_t two = sum_parts(p, parts, warps, head, slice, shared);                   // all of the token's warps
//
// A part is a unit of rows of a stream, a chunk of clusters, or a split that blocks share; units or splits of a chunk
// are added by pairs, pairs of pairs, and those two, chunks one by one in order of their rows, so the bits are those of
// attention that adds them up itself.
// A token whose rows one block of a stream has alone has no parts, but its output. Internal to cuda/attention/ and
// cuda/decode/.

#include "cuda/attention/absorbed_node.cuh"
#include "cuda/attention/absorbed_shares.cuh"

namespace fathom::cuda::absorbed {

// Instead of a stream's blocks: parts are chunks, or splits (mla_absorbed_shared_splits.cu).
inline constexpr int kChunkParts = 0, kSplitParts = -1;

// What a call has left that leaves parts.
struct PartsLeft {
  AbsorbedParams params;
  int stream_blocks;  // or kChunkParts, kSplitParts
};

// Calls of 16 heads in several clusters, or streams, whose sums another kernel adds up (absorbed_parts.cuh).
bool can_leave_parts(const ops::MlaAbsorbedArgs& args);
// REQUIRES: can_leave_parts().
PartsLeft leave_parts(const ops::MlaAbsorbedArgs& args, ops::Stream& stream);

// Where a query row's columns of a part lie: f32[parts, 8, 16, 64], with maximum and sum, float2[parts, 8, 16].
struct PartsPlace {
  __device__ __forceinline__ static int64_t at(int part, int slice, int row) {
    return (int64_t{part} * kCluster + slice) * kStreamRows + row;
  }
  template <bool kIsF8>
  __device__ static void leave(const AbsorbedParams& p, int unit, const Node& node) {
    const int slice = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t to = at(unit, slice, g + half * 8);
#pragma unroll
      for (int n = 0; n < 8; ++n)
        *reinterpret_cast<float2*>(p.values + to * kSlice + value_column<kIsF8>(n, lane)) = {
            node.values[0][n][half * 2], node.values[0][n][half * 2 + 1]};
      if (lane % 4 == 0) p.stats[to] = {node.rows[half].max, node.rows[half].sum};
    }
  }
};

// The parts of a token that is an item, as attention has left them.
struct TokenParts {
  int first = 0, count = 0;  // count 0: the token's output is written, or zeros
  int shift = 0;             // parts of a chunk: 1 << shift
  bool is_padding = false;

  // stream_blocks: as PartsLeft has them.
  __device__ __forceinline__ static TokenParts of(const AbsorbedParams& p, int stream_blocks,
                                                  int token) {
    const int lane = threadIdx.x % 32;
    const SequenceRows rows = SequenceRows::of(p, lane);
    Shares shares{};
    if (stream_blocks > 0) shares = make_shares(p, rows, stream_blocks);
    const SequenceUnits units =
        SequenceUnits::of(p, rows, stream_blocks > 0 ? shares.row_shift : kChunkShift);
    const int mine = units.items * units.units;
    int sum = mine;
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      if (lanes >= p.seqs) break;
      const int other = __shfl_up_sync(0xffffffffu, sum, lanes);
      if (lane >= lanes) sum += other;
    }
    const uint32_t holds = __ballot_sync(0xffffffffu, token >= rows.begin && token < rows.end);
    const int owner = __ffs(static_cast<int>(holds)) - 1;
    const auto of_owner = [&](int value) { return __shfl_sync(0xffffffffu, value, owner); };
    const int index = token - of_owner(rows.begin), count = of_owner(units.units);
    TokenParts parts;
    parts.is_padding = of_owner(rows.kv_len) == 0;
    if (parts.is_padding) return parts;
    if (stream_blocks <= 0) {
      // Later rows than the token's own are none of its parts.
      const int queries = of_owner(rows.end) - of_owner(rows.begin);
      const int end = p.tree_mask != nullptr && queries <= ops::kMaxTreeTokens
                          ? of_owner(rows.kv_len)
                          : of_owner(rows.kv_len) - queries + index + 1;
      constexpr int kSplitsShift = 3;
      static_assert(kSplitRows << kSplitsShift == kChunkRows);
      parts.shift = stream_blocks == kSplitParts ? kSplitsShift : 0;
      const int row_shift = kChunkShift - parts.shift;
      parts.first = token * p.max_chunks << parts.shift;
      parts.count = (end + (1 << row_shift) - 1) >> row_shift;
      return parts;
    }
    parts.shift = kChunkShift - shares.row_shift;
    parts.first = of_owner(sum - mine) + index * count;
    const bool is_whole = shares.whole_items || parts.first / shares.block_units ==
                                                    (parts.first + count - 1) / shares.block_units;
    parts.count = is_whole ? 0 : count;
    return parts;
  }
};

// Warps that add up a token's columns, which follow each other.
struct TokenWarps {
  int warps, first_warp, barrier;

  __device__ __forceinline__ int thread() const {
    return static_cast<int>(threadIdx.x) - first_warp * 32;
  }
  __device__ __forceinline__ void meet() const {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(warps * 32) : "memory");
  }
};

inline constexpr int kPartUnits = 8;  // of a lane in a round, whose loads are under way together
inline constexpr int kPartLanes = kSlice / 4;

// Of all tokens together, eight warps.
struct PartsShared {
  static constexpr int kMostChunks = 8 * 2 * kPartUnits;
  alignas(16) float4 terms[kMostChunks][kPartLanes];
  float2 sums[kMostChunks];  // of chunks; then factors of the sum so far, and what is added to sums
  float factors[kMostChunks];
};

__device__ __forceinline__ void add_part(Merged& row, float4& values, const Merged& next_row,
                                         const float4& next_values) {
  const MergeFactors f = row.add(next_row.max, next_row.sum);
  values = merge(values, f, next_values);
}

// Factors and terms of chunks by their maxima and sums, by one warp. `before`: the maximum so far.
__device__ __forceinline__ void make_part_factors(float2* sums, float* factors, int end,
                                                  float& before) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int base = 0; base < end; base += 32) {
    const float2 s = base + lane < end ? sums[base + lane] : float2{0.0f, 0.0f};
    const ChunkFactors f = ChunkFactors::of(s.x, s.y, before);
    if (base + lane >= end) continue;
    sums[base + lane] = {f.so_far, f.sum};
    factors[base + lane] = f.values;
  }
  __syncwarp();
}

// Two columns of head `row` of the token's, 2 lane and the next of those of `slice`, as bf16: for the first warp.
// REQUIRES: the token has parts.
__device__ __forceinline__ uint32_t sum_parts(const AbsorbedParams& p, const TokenParts& parts,
                                              const TokenWarps& warps, int row, int slice,
                                              PartsShared& shared) {
  const int thread = warps.thread(), group = thread / kPartLanes, lane = thread % kPartLanes;
  const int groups = warps.warps * 32 / kPartLanes, chunks = kPartUnits >> parts.shift;
  const int first_slot = warps.first_warp * 2 * kPartUnits, round = groups * chunks;
  const int num_chunks = (parts.count + (1 << parts.shift) - 1) >> parts.shift;
  float2* const sums = shared.sums + first_slot;
  float* const factors = shared.factors + first_slot;
  float before = minus_infinity(), sum = 0.0f;
  float2 total = {0.0f, 0.0f};
#pragma unroll 1
  for (int base = 0; base < num_chunks; base += round) {
    const int end = min(round, num_chunks - base);
    const int first_chunk = group * chunks, first_unit = (base + first_chunk) << parts.shift;
    Merged rows[kPartUnits];
    float4 values[kPartUnits];
#pragma unroll
    for (int u = 0; u < kPartUnits; ++u) {
      rows[u] = Merged::none();
      values[u] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (first_unit + u >= parts.count) continue;
      const int64_t at = PartsPlace::at(parts.first + first_unit + u, slice, row);
      const float2 stats = __ldcg(p.stats + at);
      rows[u] = {stats.x, stats.y};
      values[u] = __ldcg(reinterpret_cast<const float4*>(p.values + at * kSlice) + lane);
    }
#pragma unroll
    for (int width = 1; width < kPartUnits; width *= 2) {
      if (width < 1 << parts.shift) {
#pragma unroll
        for (int u = 0; u < kPartUnits; u += 2 * width)
          add_part(rows[u], values[u], rows[u + width], values[u + width]);
      }
    }
    const auto for_chunks = [&](auto use) {
#pragma unroll
      for (int u = 0; u < kPartUnits; ++u) {
        const int at = first_chunk + (u >> parts.shift);
        if ((u & ((1 << parts.shift) - 1)) == 0 && at < end) use(at, rows[u], values[u]);
      }
    };
    if (lane == 0)
      for_chunks([&](int at, const Merged& m, const float4&) { sums[at] = {m.max, m.sum}; });
    __syncwarp();
    warps.meet();
    if (thread < 32) make_part_factors(sums, factors, end, before);
    warps.meet();
    for_chunks([&](int at, const Merged&, const float4& v) {
      const float f = factors[at];
      shared.terms[first_slot + at][lane] = {ChunkFactors::term(v.x, f), ChunkFactors::term(v.y, f),
                                             ChunkFactors::term(v.z, f),
                                             ChunkFactors::term(v.w, f)};
    });
    __syncwarp();
    warps.meet();
    if (thread < 32) {
#pragma unroll 8
      for (int at = 0; at < end; ++at) {
        const float2 f = sums[at];
        const float2 t = reinterpret_cast<const float2*>(shared.terms[first_slot + at])[thread];
        sum = __fmaf_rn(sum, f.x, f.y);
        total.x = __fmaf_rn(total.x, f.x, t.x);
        total.y = __fmaf_rn(total.y, f.x, t.y);
      }
    }
    if (base + round < num_chunks) warps.meet();
  }
  const float factor = 1.0f / sum;
  return floats_to_bf16x2(total.x * factor, total.y * factor);
}

}  // namespace fathom::cuda::absorbed
