#pragma once
// What both kernels of few_tokens.h share: sizes, the ring of stages that a warp fills, and a warp's look at the pairs.
//
// Internal to experts/.

#include <algorithm>

#include "cuda/device/convert.cuh"
#include "cuda/experts/pairs.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "tuned/few_experts.h"

namespace fathom::cuda {

inline constexpr int kFewInter = static_cast<int>(tuned::kFewExpertChannels);
inline constexpr int kFewStageBytes = 16 << 10;
inline constexpr int kFewMostShared = 227 << 10;
inline constexpr int kFewMostStages = 12, kFewMostExperts = 512;
// Columns of an instruction; routed pairs of a call.
inline constexpr int kFewColumns = static_cast<int>(tuned::kMaxFewExpertTokens);
inline constexpr int kFewMostPairs = 96, kFewPairsOfLane = kFewMostPairs / 32;

__device__ __forceinline__ int pairs_per_token(const PairExperts& of) {
  return of.routed + of.shared;
}

struct FewBarriers {
  uint64_t full[kFewMostStages], empty[kFewMostStages], rows, sums;
};
// Stages for which there is room: a multiple of the warpgroups, so that each is always the same one's. Otherwise one
// could wait for a stage whose use before, by another one, is not over, and take it for its own.
inline int few_stages(int most, int warpgroups, int shared_bytes, int others_bytes) {
  const int stages =
      std::min({most, kFewMostStages, (shared_bytes - others_bytes) / kFewStageBytes});
  return std::max(1, stages / warpgroups) * warpgroups;
}

// A role's place among the stages, which it takes `step` at a time.
struct FewRing {
  FewBarriers& barriers;
  int stages, slot;
  uint32_t parity = 0;

  __device__ uint32_t full() const { return shared_address(&barriers.full[slot]); }
  __device__ uint32_t empty() const { return shared_address(&barriers.empty[slot]); }
  __device__ void advance(int step) {
    slot += step;
    if (slot < stages) return;
    slot -= stages;
    parity ^= 1;
  }
  // This thread's arrival at the stage, and so many bytes.
  __device__ void expect() const { barrier_expect(full(), kFewStageBytes); }
};

// A thread of the block; its other threads may use them behind a barrier of the block.
__device__ __forceinline__ void init_few_barriers(FewBarriers& barriers, int stages) {
  for (int i = 0; i < stages; ++i) {
    barrier_init(shared_address(&barriers.full[i]), 1);
    barrier_init(shared_address(&barriers.empty[i]), 4);  // the warps of a warpgroup
  }
  barrier_init(shared_address(&barriers.rows), 1);
  barrier_init(shared_address(&barriers.sums), 1);
  barriers_are_ready();
}

// The experts of a lane's routed pairs lane, lane + 32, ..., -1 = none. first[expert] becomes the expert's first pair;
// it was kFewMostPairs.
struct FewPairs {
  int experts[kFewPairsOfLane];

  __device__ __forceinline__ FewPairs(const PairExperts& of, int pairs, int* first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kFewPairsOfLane; ++i) {
      const int pair = i * 32 + lane;
      experts[i] = pair < pairs ? expert_of_routed(of, 0, pair) : -1;
    }
#pragma unroll
    for (int i = 0; i < kFewPairsOfLane; ++i)
      if (experts[i] >= 0) atomicMin(first + experts[i], i * 32 + lane);
    __syncwarp();
  }
  // The number that a routed pair has among all.
  static __device__ __forceinline__ int number(const PairExperts& of, int pair) {
    return pair + (pair / of.routed + 1) * of.shared;
  }
};

}  // namespace fathom::cuda
