#pragma once
// What the kernels that choose experts share: their parameters, and how they compare scores: as whole numbers of
// the same order, of which NaN is 1, below -inf, and 0 is nobody.
//
//   const uint32_t best = __reduce_max_sync(kAllLanes, key_of(score));   // value_of(best) is the score, but for NaN
//
// Internal to gate/.

#include <cstdint>

#include "cuda/experts/gate/gate.h"
#include "ops/moe.h"

namespace fathom::cuda {

inline constexpr uint32_t kAllLanes = 0xffffffffu, kNan = 1;

struct ChooseParams {
  const float* parts;                // f32[tokens, splits, experts]
  const float* bias = nullptr;       // f32[experts]; kSigmoidNoAux only
  const int64_t* kv_rows = nullptr;  // i64[tokens]; null allowed
  int32_t* ids;                      // i32[tokens, per_token]
  float* weights;                    // f32[tokens, per_token]
  int splits, experts, per_token, n_group, topk_group;
  float routed_scaling_factor;
  ops::GateKind kind;
  bool grouped, norm_topk_prob;
};

// Whole logits of many tokens, where experts and groups suit a warp; returns whether they do and, if so, has enqueued
// the work, with the bits of the other kernel.
bool choose_for_many(const ChooseParams& params, int64_t tokens, ops::Stream& stream);

// Likewise by the rules of V3 and of V2-Lite alone.
bool choose_by_one_rule(const ChooseParams& params, int64_t tokens, ops::Stream& stream);

__device__ __forceinline__ uint32_t key_of(float v) {
  if (v != v) return kNan;
  const uint32_t bits = __float_as_uint(v + 0.0f);  // the two zeros are one
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of(uint32_t key) {
  if (key == kNan) return __uint_as_float(0x7fffffffu);
  return __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

// The sum of the two largest choices of a group, one of each lane, as a key.
__device__ __forceinline__ uint32_t key_of_group(uint32_t key) {
  const uint32_t best = __reduce_max_sync(kAllLanes, key);
  const int owner = __ffs(static_cast<int>(__ballot_sync(kAllLanes, key == best))) - 1;
  const bool is_owner = static_cast<int>(threadIdx.x % 32) == owner;
  const uint32_t next = __reduce_max_sync(kAllLanes, is_owner ? 0 : key);
  return key_of(value_of(best) + value_of(next));
}

// In the order of the parts.
__device__ __forceinline__ float logit_of(const ChooseParams& p, int64_t token, int expert) {
  const float* const parts = p.parts + token * p.splits * p.experts + expert;
  if (p.splits == 1) return parts[0];
  float each[kGateSplits], sum = 0;
#pragma unroll
  for (int split = 0; split < kGateSplits; ++split) each[split] = parts[split * p.experts];
#pragma unroll
  for (int split = 0; split < kGateSplits; ++split) sum += each[split];
  return sum;
}

}  // namespace fathom::cuda
