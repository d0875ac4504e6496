// The choice of experts, one block per token: a thread per expert sums and scores, a warp per group scores groups,
// one warp takes the best experts with its scores in registers. Bound by latency. Shared: 26 KB.

#include "base/check.h"
#include "cuda/device/reduce.cuh"
#include "cuda/experts/gate/choice.cuh"
#include "cuda/experts/gate/gate.h"
#include "cuda/experts/gate/take_best.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kMaxThreads = 512, kMaxExperts = 2048;

struct Shared {
  float scores[kMaxExperts];   // what the weights are made of
  uint32_t keys[kMaxExperts];  // what is compared
  uint32_t groups[kMaxExperts];
  float warps[kMaxThreads / 32];
};

__device__ __forceinline__ float block_max_of(float v, float* shared) {
  v = warp_max(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  return warp_max(threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : -INFINITY);
}
__device__ __forceinline__ float block_sum_of(float v, float* shared) {
  v = warp_sum(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : 0.0f);
}

// `bias` and `logit`: of the thread's first expert.
__device__ __forceinline__ void score_by_sigmoid(const ChooseParams& p, Shared& shared, float bias,
                                                 float logit) {
  for (int expert = threadIdx.x; expert < p.experts; expert += blockDim.x) {
    if (expert >= kMaxThreads) {
      bias = p.bias[expert];
      logit = logit_of(p, blockIdx.x, expert);
    }
    const float score = 1.0f / (1.0f + expf(-logit));
    shared.scores[expert] = score;
    shared.keys[expert] = key_of(score + bias);
  }
}

__device__ __forceinline__ void score_by_softmax(const ChooseParams& p, Shared& shared,
                                                 float logit) {
  float most = -INFINITY, sum = 0;
  for (int expert = threadIdx.x; expert < p.experts; expert += blockDim.x) {
    if (expert >= kMaxThreads) logit = logit_of(p, blockIdx.x, expert);
    shared.scores[expert] = logit;
    most = fmaxf(most, logit);
  }
  most = block_max_of(most, shared.warps);
  for (int expert = threadIdx.x; expert < p.experts; expert += blockDim.x)
    sum += shared.scores[expert] = expf(shared.scores[expert] - most);
  sum = block_sum_of(sum, shared.warps);
  for (int expert = threadIdx.x; expert < p.experts; expert += blockDim.x) {
    const float score = shared.scores[expert] / sum;
    shared.scores[expert] = score;
    shared.keys[expert] = key_of(score);
  }
}

// A warp's look at one group: its largest choice, or the sum of its two largest.
__device__ __forceinline__ uint32_t group_key(const uint32_t* keys, int size, ops::GateKind kind) {
  const int lane = threadIdx.x % 32;
  uint32_t first = 0, second = 0;
  for (int i = lane; i < size; i += 32) {
    const uint32_t key = keys[i];
    second = max(second, min(first, key));
    first = max(first, key);
  }
  const uint32_t best = __reduce_max_sync(kAllLanes, first);
  if (kind != ops::GateKind::kSigmoidNoAux || size == 1) return best;
  const int owner = __ffs(static_cast<int>(__ballot_sync(kAllLanes, first == best))) - 1;
  const uint32_t next = __reduce_max_sync(kAllLanes, lane == owner ? second : first);
  return key_of(value_of(best) + value_of(next));
}

// Takes the experts outside the best groups out of the comparison.
__device__ __forceinline__ void exclude_groups(const ChooseParams& p, Shared& shared) {
  const int size = p.experts / p.n_group;
  for (int group = threadIdx.x / 32; group < p.n_group; group += blockDim.x / 32) {
    const uint32_t key = group_key(shared.keys + group * size, size, p.kind);
    if (threadIdx.x % 32 == 0) shared.groups[group] = key;
  }
  __syncthreads();
  for (int expert = threadIdx.x; expert < p.experts; expert += blockDim.x) {
    const int mine = expert / size;
    const uint32_t key = shared.groups[mine];
    int better = 0;
#pragma unroll 4
    for (int group = 0; group < p.n_group; ++group)
      better += shared.groups[group] > key || (shared.groups[group] == key && group < mine);
    if (better >= p.topk_group) shared.keys[expert] = 0;
  }
  __syncthreads();
}

template <int kPerLane>
__global__ void __launch_bounds__(kMaxThreads) choose(const __grid_constant__ ChooseParams p) {
  __shared__ Shared shared;
  let_next_start();
  const bool by_sigmoid = p.kind == ops::GateKind::kSigmoidNoAux;
  const float bias =
      by_sigmoid && threadIdx.x < static_cast<unsigned>(p.experts) ? p.bias[threadIdx.x] : 0.0f;
  wait_for_previous();
  // Loaded beside each other: each trip to memory is as long as the choice itself.
  const int64_t kv_row = p.kv_rows != nullptr ? p.kv_rows[blockIdx.x] : 0;
  const int first = static_cast<int>(threadIdx.x);
  const float logit = first < p.experts ? logit_of(p, blockIdx.x, first) : 0.0f;
  if (kv_row == -1) {
    for (int j = threadIdx.x; j < p.per_token; j += blockDim.x) {
      p.ids[int64_t{blockIdx.x} * p.per_token + j] = -1;
      p.weights[int64_t{blockIdx.x} * p.per_token + j] = 0;
    }
    return;
  }
  if (by_sigmoid) {
    score_by_sigmoid(p, shared, bias, logit);
  } else {
    score_by_softmax(p, shared, logit);
  }
  __syncthreads();
  if (p.grouped) exclude_groups(p, shared);
  if (threadIdx.x >= 32) return;
  uint32_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = i * 32 + first;
    keys[i] = expert < p.experts ? shared.keys[expert] : 0;
  }
  take_best(p, static_cast<int>(blockIdx.x), keys, shared.scores, shared.groups);
}

}  // namespace

void choose_experts(const ops::MoeGateArgs& args, GateTokens tokens, const GateSums& sums,
                    ops::Stream& stream) {
  const int64_t experts = args.weight.dim(0), per_token = args.ids.dim(1);
  FATHOM_CHECK(experts <= kMaxExperts, "moe_gate on CUDA chooses among at most "
                                           << kMaxExperts << " experts, got " << experts);
  ChooseParams params{
      .parts = sums.parts,
      .ids = args.ids.as<int32_t>() + tokens.begin * per_token,
      .weights = args.weights.as<float>() + tokens.begin * per_token,
      .splits = sums.splits,
      .experts = static_cast<int>(experts),
      .per_token = static_cast<int>(per_token),
      .n_group = args.n_group,
      .topk_group = args.topk_group,
      .routed_scaling_factor = args.routed_scaling_factor,
      .kind = args.kind,
      .grouped = args.kind != ops::GateKind::kSoftmaxGreedy && args.topk_group < args.n_group,
      .norm_topk_prob = args.norm_topk_prob};
  if (!args.bias.is_null()) params.bias = args.bias.as<float>();
  if (!args.kv_rows.is_null()) params.kv_rows = args.kv_rows.as<int64_t>() + tokens.begin;
  if (choose_for_many(params, tokens.end - tokens.begin, stream)) return;
  if (choose_by_one_rule(params, tokens.end - tokens.begin, stream)) return;
  const unsigned threads = std::min(num_tiles(experts, 32) * 32, unsigned{kMaxThreads});
  const LaunchShape shape{.grid = static_cast<unsigned>(tokens.end - tokens.begin),
                          .block = threads};
  if (experts <= 8 * 32) return launch(choose<8>, shape, stream, params);
  if (experts <= 16 * 32) return launch(choose<16>, shape, stream, params);
  launch(choose<kMaxExperts / 32>, shape, stream, params);
}

}  // namespace fathom::cuda
