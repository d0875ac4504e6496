#include <algorithm>

#include "cuda/device/convert.cuh"
#include "cuda/experts/pairs.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

// What stands before and after the products: which tokens an expert has, and the weighted sum of its results.

namespace fathom::cuda {
namespace {

constexpr int kSortThreads = 1024, kCombineThreads = 256;

__host__ __device__ int num_experts(const SortParams& p) {
  return p.of_pairs.experts + p.of_pairs.shared;
}

// Where each expert's pairs begin, and its groups. One warp; `counts` in, `starts` out.
__device__ void divide_into_groups(const SortParams& p, const int* counts, int* starts) {
  const int lane = static_cast<int>(threadIdx.x);
  int pairs_before = 0, groups_before = 0;
  const int experts = num_experts(p);
  for (int base = 0; base < experts; base += 32) {
    const int expert = base + lane, count = expert < experts ? counts[expert] : 0;
    const int groups = (count + p.group_tokens - 1) / p.group_tokens;
    int pairs_to = count, groups_to = groups;
    for (int step = 1; step < 32; step *= 2) {
      const int more_pairs = __shfl_up_sync(0xffffffffu, pairs_to, step);
      const int more_groups = __shfl_up_sync(0xffffffffu, groups_to, step);
      if (lane >= step) pairs_to += more_pairs, groups_to += more_groups;
    }
    const int first = pairs_before + pairs_to - count;
    if (expert < experts) starts[expert] = first;
    ExpertGroup* const mine = p.groups + groups_before + groups_to - groups;
    for (int i = 0; i < groups; ++i)
      mine[i] = {.expert = expert,
                 .first = first + i * p.group_tokens,
                 .count = min(p.group_tokens, count - i * p.group_tokens)};
    pairs_before += __shfl_sync(0xffffffffu, pairs_to, 31);
    groups_before += __shfl_sync(0xffffffffu, groups_to, 31);
  }
  if (lane == 0) *p.num_groups = groups_before;
}

// One block, bound by latency. Shared memory: counts and starts, 2 * experts integers. The order of an expert's pairs
// may differ from run to run; no result depends on it.
__global__ void __launch_bounds__(kSortThreads)
    sort_pairs_kernel(const __grid_constant__ SortParams p) {
  extern __shared__ int shared_ints[];
  int* const counts = shared_ints;
  int* const starts = shared_ints + num_experts(p);
  let_next_start();
  for (int i = threadIdx.x; i < num_experts(p); i += kSortThreads) counts[i] = 0;
  wait_for_previous();
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_pairs; i += kSortThreads) {
    const int expert = expert_of(p.of_pairs, i);
    if (expert >= 0) atomicAdd(counts + expert, 1);
  }
  __syncthreads();
  if (threadIdx.x < 32) divide_into_groups(p, counts, starts);
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_pairs; i += kSortThreads) {
    const int expert = expert_of(p.of_pairs, i);
    if (expert >= 0) p.pairs[atomicAdd(starts + expert, 1)] = i;
  }
}

// Grid: (channels, tokens).
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const __grid_constant__ CombineParams p, const float* y) {
  let_next_start();
  wait_for_previous();
  const int channel = static_cast<int>(blockIdx.x) * kCombineThreads + threadIdx.x;
  if (channel >= p.hidden_size) return;
  const int token = static_cast<int>(blockIdx.y), per_token = p.of_pairs.routed + p.of_pairs.shared;
  float sum = 0;
  for (int j = 0; j < per_token; ++j) {
    const int64_t pair = int64_t{token} * per_token + j;
    if (expert_of(p.of_pairs, static_cast<int>(pair)) < 0) continue;
    sum = __fmaf_rn(weight_of(p, token, j), y[pair * p.hidden_size + channel], sum);
  }
  Bf16* const out = static_cast<Bf16*>(p.out) + blockIdx.y * p.out_stride + channel;
  *out = cuda::from_float<Bf16>(p.accumulate ? cuda::to_float(*out) + sum : sum);
}

}  // namespace

ExpertLists sort_pairs(const SortParams& params, ops::Stream& stream) {
  launch(sort_pairs_kernel,
         {.block = kSortThreads,
          .shared_bytes = 2 * num_experts(params) * static_cast<int>(sizeof(int))},
         stream, params);
  return {.of_pairs = params.of_pairs,
          .groups = params.groups,
          .num_groups = params.num_groups,
          .pairs = params.pairs,
          .most_groups = std::min(params.num_pairs,
                                  num_experts(params) + params.num_pairs / params.group_tokens),
          .group_tokens = params.group_tokens};
}

void combine(const CombineParams& params, const float* y, ops::Stream& stream) {
  launch(combine_kernel,
         {.grid = dim3(num_tiles(params.hidden_size, kCombineThreads),
                       static_cast<unsigned>(params.tokens)),
          .block = kCombineThreads},
         stream, params, y);
}

}  // namespace fathom::cuda
