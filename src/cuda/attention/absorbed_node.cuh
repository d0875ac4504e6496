#pragma once
// Weighted values of a run of cache rows (a split, a unit, a chunk) in the registers of a block that streams, and how
// runs that follow each other become one. Internal to cuda/attention/.
//
// Where a run is empty for some of a warp's rows and not for others, as a split behind the first of several tokens is,
// the lanes of these rows part in merge(). Barriers of the block, products and what the compiler keeps once for a whole
// warp need them together, so every addition ends with __syncwarp().

#include "cuda/attention/absorbed_tile.cuh"

namespace fathom::cuda::absorbed {

// Added to anything it changes nothing, not even a zero's sign.
inline constexpr float kNothing = -0.0f;

// merge() where the set has something, or is made nothing.
__device__ __forceinline__ float add_term(float value, const MergeFactors& f, float set_value) {
  return __fmaf_rn(value, f.old_factor, __fmul_rn(set_value, f.new_factor));
}

// What a chunk of a row is multiplied by and what it adds, computed for 32 chunks side by side, so that adding one
// behind the other is a multiplication and an addition each.
struct ChunkFactors {
  static constexpr float kSkip = -1.0f;

  float so_far;  // of the sum of the chunks before
  float values;  // of the chunk's values; kSkip of an empty one
  float sum;     // to be added to sums

  // By a warp: of the lane's chunk, behind those of the lanes before. `before`: the maximum so far.
  __device__ __forceinline__ static ChunkFactors of(float max, float sum, float& before) {
    const int lane = threadIdx.x % 32;
    const bool skip = sum == 0.0f;
    float top = skip ? minus_infinity() : max;  // of this chunk and those before it
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const float other = __shfl_up_sync(0xffffffffu, top, lanes);
      if (lane >= lanes) top = fmaxf(top, other);
    }
    const float other = __shfl_up_sync(0xffffffffu, top, 1);
    Merged so_far{lane == 0 ? before : fmaxf(before, other), 0.0f};
    const MergeFactors f = so_far.add(max, sum);
    before = fmaxf(before, __shfl_sync(0xffffffffu, top, 31));
    return {f.old_factor, skip ? kSkip : f.new_factor,
            skip ? kNothing : __fmul_rn(sum, f.new_factor)};
  }
  // What a value adds, by the `values` of its chunk.
  __device__ __forceinline__ static float term(float value, float factor) {
    return factor == kSkip ? kNothing : __fmul_rn(value, factor);
  }
};

// A thread's part: columns of query rows g and g + 8, in the order of value_column().
struct Node {
  Merged rows[2];
  float values[1][8][4];

  __device__ __forceinline__ void clear() {
    rows[0] = rows[1] = Merged::none();
    clear_values();
  }
  __device__ __forceinline__ void clear_values() {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[0][n][i] = 0.0f;
    }
  }
  __device__ __forceinline__ float4 vector(int n) const {
    return {values[0][n][0], values[0][n][1], values[0][n][2], values[0][n][3]};
  }
  // Becomes what comes before it with itself added: statistics, and values as before(n) gives them.
  template <class Before>
  __device__ __forceinline__ void add_to(const Merged (&rows_before)[2], const Before& before) {
    Merged total[2] = {rows_before[0], rows_before[1]};
    const MergeFactors f[2] = {total[0].add(rows[0].max, rows[0].sum),
                               total[1].add(rows[1].max, rows[1].sum)};
    rows[0] = total[0];
    rows[1] = total[1];
    // Rows that have nothing to add are rare: what is added is made nothing, so that all are added in one way.
    if (__any_sync(0xffffffffu, f[0].skip || f[1].skip)) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (f[i / 2].skip) values[0][n][i] = kNothing;
      }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float4 old = before(n);
      const float from[4] = {old.x, old.y, old.z, old.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) values[0][n][i] = add_term(from[i], f[i / 2], values[0][n][i]);
    }
    __syncwarp();
  }
};

// A node's values in memory, each thread its own: float4[8, 256].
__device__ __forceinline__ void put_values(const Node& node, float4* to) {
#pragma unroll
  for (int n = 0; n < 8; ++n) to[n * kThreads + threadIdx.x] = node.vector(n);
}

// The node becomes what is in memory with the node added.
__device__ __forceinline__ void add_to_values(Node& node, const Merged (&rows)[2],
                                              const float4* from) {
  node.add_to(rows, [from](int n) { return from[n * kThreads + threadIdx.x]; });
}

// Splits of a chunk added by pairs, pairs of pairs, and those two, while they come one by one. A split waits in
// registers, a pair in shared memory, half a chunk in scratch.
struct SplitTree {
  Node split;
  Merged pair[2], half[2];

  // Number `index` of a run; the last one's node becomes the run's.
  __device__ __forceinline__ void add(Node& node, int index, bool is_last, float4* pair_values,
                                      float4* half_values) {
    if (index & 1) {
      node.add_to(split.rows, [this](int n) { return split.vector(n); });
    } else if (!is_last) {
      split = node;
      return;
    }
    if (index & 2) {
      add_to_values(node, pair, pair_values);
    } else if (!is_last) {
      return hold(node, pair, pair_values);
    }
    if (index & 4) {
      add_to_values(node, half, half_values);
    } else if (!is_last) {
      hold(node, half, half_values);
    }
  }

 private:
  __device__ __forceinline__ static void hold(const Node& node, Merged (&rows)[2], float4* values) {
    rows[0] = node.rows[0];
    rows[1] = node.rows[1];
    put_values(node, values);
  }
};

// What an item is so far, chunk by chunk: statistics in registers, values in memory of this block.
struct ItemSum {
  float4* values;
  Merged rows[2] = {Merged::none(), Merged::none()};

  // The node becomes the sum.
  __device__ __forceinline__ void add(Node& node, bool is_first, bool is_last) {
    if (is_first) {
      node.add_to(rows, [](int) { return float4{0.0f, 0.0f, 0.0f, 0.0f}; });
    } else {
      add_to_values(node, rows, values);
    }
    if (is_last) return;
    rows[0] = node.rows[0];
    rows[1] = node.rows[1];
    put_values(node, values);
  }
};

template <bool kIsF8>
__device__ __forceinline__ void write_item(const AbsorbedParams& p, const QueryGroup& group,
                                           const Node& node) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = g + half * 8;
    if (row >= group.num_rows()) continue;
    const float factor = 1.0f / (group.kv_len == 0 ? 1.0f : node.rows[half].sum);  // padding: zeros
    Bf16* const to = p.out + group.token_head(row, p.heads) * kLatent + warp * kSlice;
#pragma unroll
    for (int n = 0; n < 8; ++n)
      *reinterpret_cast<uint32_t*>(to + value_column<kIsF8>(n, lane)) = floats_to_bf16x2(
          node.values[0][n][half * 2] * factor, node.values[0][n][half * 2 + 1] * factor);
  }
}

// Nodes of the units of items that several blocks share, by the units' numbers.
struct SharedNodes {
  __device__ static float4* values(const AbsorbedParams& p, int unit) {
    return reinterpret_cast<float4*>(p.values) + int64_t{unit} * 8 * kThreads;
  }
  // A block's own two, behind the units'.
  __device__ static float4* item_sum(const AbsorbedParams& p) {
    return values(p, p.max_nodes + static_cast<int>(blockIdx.x));
  }
  __device__ static float4* half_chunk(const AbsorbedParams& p) {
    return values(p, p.max_nodes + static_cast<int>(gridDim.x + blockIdx.x));
  }

  __device__ static void store(const AbsorbedParams& p, int unit, const Node& node) {
    const int g = threadIdx.x % 32 / 4;
    put_values(node, values(p, unit));
    if (threadIdx.x < 32 && threadIdx.x % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        p.stats[int64_t{unit} * 16 + g + half * 8] = {node.rows[half].max, node.rows[half].sum};
    }
  }
  __device__ static void load(const AbsorbedParams& p, int unit, Node& node) {
    const int g = threadIdx.x % 32 / 4;
    const float4* const from = values(p, unit);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 stats = __ldcg(p.stats + int64_t{unit} * 16 + g + half * 8);
      node.rows[half] = {stats.x, stats.y};
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float4 v = __ldcg(from + n * kThreads + threadIdx.x);
      node.values[0][n][0] = v.x;
      node.values[0][n][1] = v.y;
      node.values[0][n][2] = v.z;
      node.values[0][n][3] = v.w;
    }
  }
};

}  // namespace fathom::cuda::absorbed
