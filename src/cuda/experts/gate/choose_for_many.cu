// The choice of experts for many tokens by V3's rule: a warp per token, lane l has experts l, l + 32, ... in registers,
// so that a group of 32 experts is one register of each lane. Bound by instructions, about 900 of a warp for 256
// experts. Grid: a block per kWarps tokens. No shared memory, no barrier.

#include "cuda/experts/gate/choice.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kWarps = 4, kGroupSize = 32;
constexpr int64_t kMinTokens = 1024;  // fewer leave multiprocessors without enough warps

// Takes the experts outside the best groups out of the comparison; group i is register i.
template <int kPerLane>
__device__ __forceinline__ void exclude_groups(const ChooseParams& p, uint32_t (&keys)[kPerLane]) {
  const int lane = threadIdx.x % 32;
  uint32_t mine = 0;  // lane i: of group i
#pragma unroll
  for (int group = 0; group < kPerLane; ++group) {
    if (group >= p.n_group) break;
    const uint32_t key = key_of_group(keys[group]);
    if (lane == group) mine = key;
  }
  int better = 0;
#pragma unroll
  for (int group = 0; group < kPerLane; ++group) {
    const uint32_t other = __shfl_sync(kAllLanes, mine, group);
    better += group < p.n_group && (other > mine || (other == mine && group < lane));
  }
  const uint32_t taken = __ballot_sync(kAllLanes, better < p.topk_group);
#pragma unroll
  for (int group = 0; group < kPerLane; ++group)
    if ((taken >> group & 1) == 0) keys[group] = 0;
}

template <int kPerLane>
__global__ void __launch_bounds__(kWarps * 32)
    choose_by_warps(const __grid_constant__ ChooseParams p, int tokens) {
  let_next_start();
  const int lane = threadIdx.x % 32;
  const int token = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  float bias[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * 32 + lane;
    bias[i] = expert < p.experts ? p.bias[expert] : 0.0f;
  }
  wait_for_previous();
  if (token >= tokens) return;
  const int64_t out = int64_t{token} * p.per_token + lane;
  if (p.kv_rows != nullptr && p.kv_rows[token] == -1) {
    if (lane < p.per_token) p.ids[out] = -1, p.weights[out] = 0;
    return;
  }
  float scores[kPerLane];
  uint32_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * 32 + lane;
    scores[i] = expert < p.experts ? p.parts[int64_t{token} * p.experts + expert] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    scores[i] = 1.0f / (1.0f + expf(-scores[i]));
    keys[i] = i * 32 + lane < p.experts ? key_of(scores[i] + bias[i]) : 0;
  }
  if (p.grouped) exclude_groups(p, keys);
  float total = 0, score = 0;  // score and expert: of the lane's place in the order
  int expert = 0;
  for (int j = 0; j < p.per_token; ++j) {
    uint32_t best = 0, mine = 0;
    float score_of_mine = scores[0];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (keys[i] > best) {
        best = keys[i];
        mine = static_cast<uint32_t>(i * 32 + lane);
        score_of_mine = scores[i];
      }
    const uint32_t key = __reduce_max_sync(kAllLanes, best);
    const uint32_t taken = __reduce_min_sync(kAllLanes, best == key ? mine : ~0u);
    const float taken_score = __shfl_sync(kAllLanes, score_of_mine, static_cast<int>(taken % 32));
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (taken == static_cast<uint32_t>(i * 32 + lane)) keys[i] = 0;
    total += taken_score;
    if (lane == j) {
      score = taken_score;
      expert = static_cast<int>(taken);
    }
  }
  if (lane >= p.per_token) return;
  const float divisor = p.norm_topk_prob ? total + 1e-20f : 1.0f;
  p.weights[out] = score / divisor * p.routed_scaling_factor;
  p.ids[out] = expert;
}

}  // namespace

bool choose_for_many(const ChooseParams& p, int64_t tokens, ops::Stream& stream) {
  if (tokens < kMinTokens || p.splits != 1 || p.kind != ops::GateKind::kSigmoidNoAux ||
      p.experts > 16 * 32 || p.per_token > 32 || (p.grouped && p.experts != p.n_group * kGroupSize))
    return false;
  const LaunchShape shape{.grid = num_tiles(tokens, kWarps), .block = kWarps * 32};
  const auto kernel = p.experts <= 8 * 32 ? choose_by_warps<8> : choose_by_warps<16>;
  launch(kernel, shape, stream, p, static_cast<int>(tokens));
  return true;
}

}  // namespace fathom::cuda
