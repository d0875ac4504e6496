// The choice of experts by one rule alone, with the bits of choose.cu: what runs once waits for its instructions, and
// for those of other rules that lie between. Bound by latency.
// V3's, where a group is a warp's lanes: one block per token, a thread per expert. V2-Lite's, of any number of tokens:
// one warp per token, two experts a lane, so nothing waits for a barrier.

#include "cuda/device/reduce.cuh"
#include "cuda/experts/gate/take_best.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kMostGroups = 8, kMostExperts = kMostGroups * 32, kMostSoftmax = 64, kMostTaken = 32;

__device__ __forceinline__ bool is_padding(const ChooseParams& p, int token) {
  return p.kv_rows != nullptr && p.kv_rows[token] == -1;
}
__device__ __forceinline__ void choose_nothing(const ChooseParams& p, int token) {
  const int j = static_cast<int>(threadIdx.x);
  if (j >= p.per_token) return;
  p.ids[int64_t{token} * p.per_token + j] = -1;
  p.weights[int64_t{token} * p.per_token + j] = 0;
}

__global__ void __launch_bounds__(kMostExperts)
    choose_in_groups(const __grid_constant__ ChooseParams p) {
  __shared__ float scores[kMostExperts];
  __shared__ uint32_t keys[kMostExperts], groups[kMostGroups], taken[kMostTaken];
  const int token = static_cast<int>(blockIdx.x), expert = static_cast<int>(threadIdx.x);
  const int lane = expert % 32, group = expert / 32;
  const float bias = p.bias[expert];
  wait_for_previous();
  let_next_start();  // not before: experts' blocks find room on more multiprocessors now
  const bool padding = is_padding(p, token);
  const float logit = logit_of(p, token, expert);
  if (padding) return choose_nothing(p, token);
  const float score = 1.0f / (1.0f + expf(-logit));
  const uint32_t key = key_of(score + bias), of_group = key_of_group(key);
  scores[expert] = score;
  if (lane == 0) groups[group] = of_group;
  __syncthreads();
  const uint32_t other = lane < p.n_group ? groups[lane] : 0;
  const bool is_better = other > of_group || (other == of_group && lane < group);
  const bool stays = __popc(__ballot_sync(kAllLanes, is_better)) < p.topk_group;
  keys[expert] = stays ? key : 0;
  __syncthreads();
  if (group > 0) return;
  uint32_t mine[kMostGroups];
#pragma unroll
  for (int i = 0; i < kMostGroups; ++i) mine[i] = i < p.n_group ? keys[i * 32 + lane] : 0;
  take_best(p, token, mine, scores, taken);
}

__global__ void __launch_bounds__(32) choose_by_softmax(const __grid_constant__ ChooseParams p) {
  __shared__ float scores[kMostSoftmax];
  __shared__ uint32_t taken[kMostTaken];
  let_next_start();
  const int token = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  const bool has_second = lane + 32 < p.experts, has_first = lane < p.experts;
  wait_for_previous();
  const bool padding = is_padding(p, token);
  const float first = has_first ? logit_of(p, token, lane) : -INFINITY;
  const float second = has_second ? logit_of(p, token, lane + 32) : -INFINITY;
  if (padding) return choose_nothing(p, token);
  const float most = warp_max(fmaxf(first, second));
  const float one = has_first ? expf(first - most) : 0.0f;
  const float two = has_second ? expf(second - most) : 0.0f;
  const float sum = warp_sum(one) + warp_sum(two);
  scores[lane] = one / sum;
  scores[lane + 32] = two / sum;
  uint32_t keys[2] = {has_first ? key_of(one / sum) : 0, has_second ? key_of(two / sum) : 0};
  __syncwarp();
  take_best(p, token, keys, scores, taken);
}

}  // namespace

bool choose_by_one_rule(const ChooseParams& params, int64_t tokens, ops::Stream& stream) {
  if (params.per_token > kMostTaken) return false;
  const auto grid = static_cast<unsigned>(tokens);
  if (params.kind == ops::GateKind::kSoftmaxGreedy && params.experts <= kMostSoftmax) {
    launch(choose_by_softmax, {.grid = grid, .block = 32}, stream, params);
    return true;
  }
  if (params.splits != kGateSplits) return false;
  const int groups = params.n_group;
  if (params.kind == ops::GateKind::kSigmoidNoAux && params.grouped && groups <= kMostGroups &&
      params.experts == groups * 32) {
    launch(choose_in_groups, {.grid = grid, .block = static_cast<unsigned>(params.experts)}, stream,
           params);
    return true;
  }
  return false;
}

}  // namespace fathom::cuda
