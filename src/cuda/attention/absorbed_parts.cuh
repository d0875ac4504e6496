#pragma once
// Attention whose sums of parts stay in scratch for the kernel behind it, so that its blocks need not wait for each
// other: what leaves them, and which they are. cuda/decode/parts_sum.cuh adds them up.
//
//   PartsPlace::leave<kIsF8>(p, unit, node);                      // a stream's unit; clusters leave their chunks alike
//   const TokenParts parts = TokenParts::of(p, stream_blocks, token);                       // all lanes of a warp
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
      for (int n = 0; n < 8; n += 2) {
        const float2 low = two(node, n, half), high = two(node, n + 1, half);
        float* const first = p.values + to * kSlice + value_column<kIsF8>(n, lane);
        if constexpr (kIsF8) {
          __stcg(reinterpret_cast<float4*>(first), float4{low.x, low.y, high.x, high.y});
        } else {
          __stcg(reinterpret_cast<float2*>(first), low);
          __stcg(reinterpret_cast<float2*>(first + 8), high);
        }
      }
      if (lane % 4 == 0) p.stats[to] = {node.rows[half].max, node.rows[half].sum};
    }
  }

 private:
  __device__ __forceinline__ static float2 two(const Node& node, int n, int half) {
    return {node.values[0][n][half * 2], node.values[0][n][half * 2 + 1]};
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

}  // namespace fathom::cuda::absorbed
