#pragma once
// Log-probabilities of a row of logits that a cluster holds, and its best tokens.
//
//   const PartOfSum part = exponentials(row);
//   cluster.share({part.packed(), ...});                        // word 0
//   const float log_total = log_total_of(cluster);              // log(sum(exp(logits)))
//   write_top(params, row, cluster, log_total, /*wanted=*/5);   // params.top_ids, params.top_logprobs of the row
//
// Every thread of the cluster calls them.

#include <cstdint>

#include "cuda/device/reduce.cuh"
#include "cuda/sampling/cluster.cuh"
#include "cuda/sampling/sample_row.cuh"

namespace fathom::cuda {

// The largest logit of a warp's and the sum of exponentials relative to it.
struct PartOfSum {
  float most, sum;

  __device__ __forceinline__ uint64_t packed() const {
    return uint64_t{__float_as_uint(most)} << 32 | __float_as_uint(sum);
  }
  static __device__ __forceinline__ PartOfSum unpacked(uint64_t word) {
    return {.most = __uint_as_float(static_cast<uint32_t>(word >> 32)),
            .sum = __uint_as_float(static_cast<uint32_t>(word))};
  }
};

__device__ __forceinline__ PartOfSum exponentials(const SampleRow& row) {
  float most = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kRowGroups; ++i)
#pragma unroll
    for (int c = 0; c < 4; ++c) most = fmaxf(most, row.values[i][c]);
  most = warp_max(most);
#pragma unroll
  for (int i = 0; i < kRowGroups; ++i)
#pragma unroll
    for (int c = 0; c < 4; ++c) sum += expf(row.values[i][c] - most);
  return {.most = most, .sum = most > -INFINITY ? warp_sum(sum) : 0.0f};
}

// log(sum(exp(logits))) from the parts of all warps, which are word 0 of their slots.
__device__ __forceinline__ float log_total_of(const Cluster& cluster) {
  float most = -INFINITY, sum = 0;
  for (int i = threadIdx.x % 32; i < cluster.num_slots(); i += 32)
    most = fmaxf(most, PartOfSum::unpacked(cluster.slot(0, i)).most);
  most = warp_max(most);
  for (int i = threadIdx.x % 32; i < cluster.num_slots(); i += 32) {
    const PartOfSum part = PartOfSum::unpacked(cluster.slot(0, i));
    sum += part.sum * expf(part.most - most);
  }
  return most + logf(warp_sum(sum));
}

// The largest log-probabilities one after the other: a thread whose token was taken looks for its next one.
__device__ __forceinline__ int pick_top(const SampleParams& p, SampleRow& row, Cluster& cluster,
                                        float log_total, int wanted) {
  if (wanted <= 0) return 0;
  row.load();
  uint64_t mine = row.best_below(~uint64_t{0});
  for (int j = 0; j < wanted; ++j) {
    cluster.share({warp_max_whole(mine)});
    const uint64_t best = cluster.max(0);
    if (best == 0) return j;  // fewer tokens than wanted
    if (mine == best) mine = row.best_below(best);
    if (cluster.rank() == 0 && threadIdx.x == 0) {
      p.top_ids[int64_t{row.row()} * p.max_top + j] = rank_id(best);
      p.top_logprobs[int64_t{row.row()} * p.max_top + j] = rank_logit(best) - log_total;
    }
  }
  return wanted;
}

// The first `wanted` entries of the row, and -1 and 0 in the others.
__device__ __forceinline__ void write_top(const SampleParams& p, SampleRow& row, Cluster& cluster,
                                          float log_total, int wanted) {
  const int num_top = pick_top(p, row, cluster, log_total, wanted);
  if (cluster.rank() != 0) return;
  for (int j = num_top + static_cast<int>(threadIdx.x); j < p.max_top; j += kSampleThreads) {
    p.top_ids[int64_t{row.row()} * p.max_top + j] = -1;
    p.top_logprobs[int64_t{row.row()} * p.max_top + j] = 0;
  }
}

}  // namespace fathom::cuda
