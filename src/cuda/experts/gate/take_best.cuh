#pragma once
// One warp takes a token's best experts from its lanes' registers, best first, and writes their weights.
//
//   take_best(p, token, keys, scores, taken);      // lane l has keys of experts l, l + 32, ...
//
// scores: of all experts, taken: room for p.per_token, both in shared memory. Internal to gate/.

#include "cuda/experts/gate/choice.cuh"

namespace fathom::cuda {

// As a tree, for its latency.
template <int kCount>
__device__ __forceinline__ uint32_t largest(const uint32_t (&keys)[kCount]) {
  uint32_t most[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) most[i] = keys[i];
#pragma unroll
  for (int step = 1; step < kCount; step *= 2)
#pragma unroll
    for (int i = 0; i + step < kCount; i += 2 * step) most[i] = max(most[i], most[i + step]);
  return most[0];
}

template <int kPerLane>
__device__ __forceinline__ void take_best(const ChooseParams& p, int token,
                                          uint32_t (&keys)[kPerLane], const float* scores,
                                          uint32_t* taken) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float total = 0;
  for (int j = 0; j < p.per_token; ++j) {
    const uint32_t key = __reduce_max_sync(kAllLanes, largest(keys));
    uint32_t mine = ~0u;
#pragma unroll
    for (int i = kPerLane - 1; i >= 0; --i)
      if (keys[i] == key) mine = static_cast<uint32_t>(i * 32 + lane);
    const uint32_t best = __reduce_min_sync(kAllLanes, mine);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (best == static_cast<uint32_t>(i * 32 + lane)) keys[i] = 0;
    total += scores[best];
    if (lane == 0) taken[j] = best;
  }
  __syncwarp();  // lane 0 wrote what was taken
  const float divisor = p.norm_topk_prob ? total + 1e-20f : 1.0f;
  for (int j = lane; j < p.per_token; j += 32) {
    const int64_t to = int64_t{token} * p.per_token + j;
    p.ids[to] = static_cast<int32_t>(taken[j]);
    p.weights[to] = scores[taken[j]] / divisor * p.routed_scaling_factor;
  }
}

}  // namespace fathom::cuda
