#pragma once
// Pairs of tokens and experts on the device (experts.h): who belongs to whom, and with which weight.
//
// Internal to cuda/.

#include "cuda/experts/experts.h"

namespace fathom::cuda {

// Of a token's routed pairs, -1 = none that is here. Past the L1 cache, which may hold an older call's list.
__device__ __forceinline__ int expert_of_routed(const PairExperts& of, int token, int routed) {
  const int id = __ldcg(of.ids + token * of.routed + routed), place = id - of.first;
  return id >= 0 && place >= 0 && place < of.experts ? place : -1;
}
// Of any pair.
__device__ __forceinline__ int expert_of(const PairExperts& of, int pair) {
  const int token = pair / (of.routed + of.shared), j = pair % (of.routed + of.shared);
  if (j < of.shared) return of.experts + j;
  return expert_of_routed(of, token, j - of.shared);
}
__device__ __forceinline__ ExpertGroup load_group(const ExpertLists& lists, int group) {
  if (lists.groups == nullptr)
    return {.expert = expert_of(lists.of_pairs, group), .first = group, .count = 1};
  const int* const from = &lists.groups[group].expert;
  return {.expert = __ldcg(from), .first = __ldcg(from + 1), .count = __ldcg(from + 2)};
}
__device__ __forceinline__ int load_pair(const ExpertLists& lists, int i) {
  return lists.groups == nullptr ? i : __ldcg(lists.pairs + i);
}

// The routing weight of a token's j-th pair; 1 for shared experts.
__device__ __forceinline__ float weight_of(const CombineParams& c, int token, int j) {
  const PairExperts& of = c.of_pairs;
  return j < of.shared ? 1.0f : __ldcg(c.weights + token * of.routed + j - of.shared);
}

}  // namespace fathom::cuda
