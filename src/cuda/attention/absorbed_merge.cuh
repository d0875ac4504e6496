#pragma once
// How the weighted values of the blocks of fast absorbed attention (mla_absorbed.cu) become one: those of a cluster
// through shared memory, those of several clusters through scratch. The splits of a chunk are added by pairs, pairs of
// pairs, and those two; chunks one by one in order of their rows. Internal to cuda/attention/.

#include "cuda/attention/absorbed_tile.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda::absorbed {

// A thread's part of what a block merges: four columns of one query row in each tile of 16.
template <int kMTiles>
struct SliceSum {
  Merged merged[kMTiles];
  float values[kMTiles][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      merged[m] = Merged::none();
#pragma unroll
      for (int i = 0; i < 4; ++i) values[m][i] = 0.0f;
    }
  }
  __device__ __forceinline__ void add(int m, float2 stats, const float4& v) {
    const float4 added = merge(vector(m), merged[m].add(stats.x, stats.y), v);
    values[m][0] = added.x;
    values[m][1] = added.y;
    values[m][2] = added.z;
    values[m][3] = added.w;
  }
  __device__ __forceinline__ float2 stats(int m) const { return {merged[m].max, merged[m].sum}; }
  __device__ __forceinline__ float4 vector(int m) const {
    return {values[m][0], values[m][1], values[m][2], values[m][3]};
  }
  __device__ static int row(int m) { return m * 16 + static_cast<int>(threadIdx.x) / 16; }
  __device__ static int column() { return threadIdx.x % 16 * 4; }

  __device__ __forceinline__ void write(const AbsorbedParams& p, const QueryGroup& group,
                                        int slice) const {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      if (row(m) >= group.num_rows()) continue;
      const float factor = 1.0f / merged[m].sum;
      const uint2 out = {floats_to_bf16x2(values[m][0] * factor, values[m][1] * factor),
                         floats_to_bf16x2(values[m][2] * factor, values[m][3] * factor)};
      *reinterpret_cast<uint2*>(p.out + group.token_head(row(m), p.heads) * kLatent +
                                slice * kSlice + column()) = out;
    }
  }
};

// Adds this block's columns of eight blocks of the cluster, which have a chunk from `first_rank` on.
template <int kMTiles, class Layout>
__device__ __forceinline__ void merge_splits(int slice, char* shared, SliceSum<kMTiles>& sum,
                                             uint32_t first_rank = 0) {
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
    const int row = sum.row(m);
    const uint32_t stats_at = shared_address(shared + Layout::kStats) + row * 8;
    const uint32_t values_at =
        shared_address(shared) +
        ((slice * Layout::kRows + row) * kSlice + swizzled(row, sum.column())) * 4;
    Merged splits[kCluster];
    float4 values[kCluster];
#pragma unroll
    for (int rank = 0; rank < kCluster; ++rank) {
      const float2 stats = load_remote2(stats_at, first_rank + rank);
      splits[rank] = {stats.x, stats.y};
      values[rank] = load_remote4(values_at, first_rank + rank);
    }
#pragma unroll
    for (int width = 1; width < kCluster; width *= 2) {
#pragma unroll
      for (int rank = 0; rank < kCluster; rank += 2 * width) {
        const MergeFactors f = splits[rank].add(splits[rank + width].max, splits[rank + width].sum);
        values[rank] = merge(values[rank], f, values[rank + width]);
      }
    }
    sum.add(m, {splits[0].max, splits[0].sum}, values[0]);
  }
  __syncwarp();  // lanes whose rows see fewer splits are back: barriers of the cluster need all
}

// The chunks of an item that has several clusters: stored, and merged by whoever comes last.
template <int kMTiles>
struct SharedItem {
  static constexpr int kRows = 16 * kMTiles;

  __device__ static int64_t at(const AbsorbedParams& p, int item, int chunk, int slice, int m) {
    return ((int64_t{item} * p.max_chunks + chunk) * kCluster + slice) * kRows +
           SliceSum<kMTiles>::row(m);
  }
  __device__ static void store(const AbsorbedParams& p, int item, int chunk, int slice,
                               const SliceSum<kMTiles>& sum) {
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
      const int64_t to = at(p, item, chunk, slice, m);
      *reinterpret_cast<float4*>(p.values + to * kSlice + sum.column()) = sum.vector(m);
      if (threadIdx.x % 16 == 0) p.stats[to] = sum.stats(m);
    }
  }
  // Whether all clusters have stored theirs; then this block merges.
  __device__ static bool is_last(const AbsorbedParams& p, int item, int slice, int clusters,
                                 uint32_t* shared) {
    uint32_t* const ticket = p.tickets + item * kCluster + slice;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      *shared = atomicAdd(ticket, 1);
      if (*shared + 1 == static_cast<uint32_t>(clusters)) *ticket = 0;
    }
    __syncthreads();
    const bool last = *shared + 1 == static_cast<uint32_t>(clusters);
    if (last) __threadfence();
    return last;
  }
  __device__ static void merge_all(const AbsorbedParams& p, int item, int num_chunks, int slice,
                                   SliceSum<kMTiles>& sum) {
    sum.clear();
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll 4
      for (int chunk = 0; chunk < num_chunks; ++chunk) {
        const int64_t from = at(p, item, chunk, slice, m);
        const float2 stats = __ldcg(p.stats + from);
        const float4 values =
            __ldcg(reinterpret_cast<const float4*>(p.values + from * kSlice + sum.column()));
        sum.add(m, stats, values);
      }
    }
    __syncwarp();
  }
};

}  // namespace fathom::cuda::absorbed
