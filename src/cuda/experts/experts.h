#pragma once
// The kernels of the experts and what they hand to each other. A pair is (token, j), numbered token * j's + j; a group
// is some tokens of one expert. Shared experts are experts that every token has, with weight 1: the first j's.
//
//   sort_pairs(...);  run_gate_up(...);  [quantize_rows(h)]  run_down(...);  combine(...);
//
// A few tokens need no sorting: each pair is a group, and run_down_and_combine does the rest in one kernel.
// Internal to cuda/.

#include <cstdint>

#include "cuda/gemm/stored.h"
#include "ops/moe.h"
#include "ops/stream.h"
#include "tensor/dtype.h"

namespace fathom::cuda {

struct ExpertGroup {
  int expert, first, count;  // of `pairs`
};

// The expert of each pair: shared ones come after the routed ones.
struct PairExperts {
  const int32_t* ids = nullptr;  // i32[tokens, routed], negative = none
  int routed = 0, shared = 0;    // pairs of a token
  int first = 0, experts = 0;    // the routed ones that are here
  int per_token() const { return routed + shared; }
};

// Tokens of a group: many where the wide kernels run.
inline constexpr int kWideGroup = 32, kNarrowGroup = 8;

// Null groups: pair i is group i.
struct ExpertLists {
  PairExperts of_pairs;
  const ExpertGroup* groups = nullptr;  // [num_groups]
  const int* num_groups = nullptr;      // [1]
  const int* pairs = nullptr;           // i32[num_pairs], expert by expert
  int most_groups = 0;                  // what the host knows
  int group_tokens = kNarrowGroup;      // at most in a group: kNarrowGroup or kWideGroup
};

struct ExpertProductParams {
  // bf16[pairs / pairs_per_row, in] or what the weight takes: e4m3 (f8, i4), i8; f32 for run_down_and_combine, which
  // quantises
  const char* x = nullptr;
  const float* x_scale =
      nullptr;  // f32[pairs / pairs_per_row, ceil(in / 128)], or [.., 1] of i8 with scales of channels
  int64_t x_stride_bytes = 0;
  int pairs_per_row = 1;
  const char* weight = nullptr;  // W[experts, 1 or 2, rows, in]
  // f32[experts, 1 or 2, ceil(rows / 128), ceil(in / 128)] of f8 and i8, [.., rows, ceil(in / 128)] of i4, [.., rows]
  // of i8 with scales of channels
  const float* w_scale = nullptr;
  // The shared experts side by side: gate_up W[2, shared, rows, in], down W[rows, shared, in]; scales likewise.
  const char* shared_weight = nullptr;
  const float* shared_w_scale = nullptr;
  ExpertLists lists;
  int rows = 0, in = 0;
  // gate_up: h, bf16[pairs, rows], f32 where rows are quantised. down: y, f32[pairs, rows].
  void* out = nullptr;
  bool is_aligned = false;  // all rows can be read in pieces of 16 bytes
  int chosen_stages = 0;    // of the warps' rings, as measured; 0: by the launcher's rule
  // Set by the launcher.
  int lines = 0, warps = 1, stages = 2, units = 0;
  int blocks = 0;  // of 128 channels
};

struct CombineParams {
  PairExperts of_pairs;
  const float* weights = nullptr;  // f32[tokens, routed]
  void* out = nullptr;             // bf16[tokens, hidden_size]
  int64_t out_stride = 0;
  int tokens = 0, hidden_size = 0;
  bool accumulate = false;
};

struct SortParams {
  PairExperts of_pairs;
  ExpertGroup* groups = nullptr;
  int* num_groups = nullptr;
  int* pairs = nullptr;
  int num_pairs = 0, group_tokens = 8;
};

// The lists that are there once it has run.
ExpertLists sort_pairs(const SortParams& params, ops::Stream& stream);
void combine(const CombineParams& params, const float* y, ops::Stream& stream);

inline bool takes_wide_groups(Stored weight, const ExpertProductParams& params) {
  return params.is_aligned && weight != Stored::kF32;
}
void run_gate_up(Stored weight, const ExpertProductParams& params, ops::Stream& stream);
// REQUIRES: groups.
void run_down(Stored weight, const ExpertProductParams& params, ops::Stream& stream);
// REQUIRES: null groups, aligned, weights of bf16, f8 or i4.
void run_down_and_combine(Stored weight, const ExpertProductParams& params,
                          const CombineParams& combining, ops::Stream& stream);

// moe_experts_shared as its parts, where the shared FFN does not divide into experts of the routed width.
int64_t shared_in_parts_scratch(const ops::MoeExpertsSharedArgs& args, const ops::Stream& stream);
void shared_in_parts(const ops::MoeExpertsSharedArgs& args, ops::Stream& stream);

// Per type of weight, each in a file of its own.
template <class W>
void run_gate_up_of(const ExpertProductParams& params, ops::Stream& stream);
template <class W>
void run_down_of(const ExpertProductParams& params, ops::Stream& stream);
template <class W>
void run_down_and_combine_of(const ExpertProductParams& params, const CombineParams& combining,
                             ops::Stream& stream);
template <>
void run_gate_up_of<float>(const ExpertProductParams&, ops::Stream&);
template <>
void run_down_of<float>(const ExpertProductParams&, ops::Stream&);
template <>
void run_gate_up_of<tensor::Bf16>(const ExpertProductParams&, ops::Stream&);
template <>
void run_down_of<tensor::Bf16>(const ExpertProductParams&, ops::Stream&);
template <>
void run_gate_up_of<tensor::F8E4M3>(const ExpertProductParams&, ops::Stream&);
template <>
void run_down_of<tensor::F8E4M3>(const ExpertProductParams&, ops::Stream&);
template <>
void run_gate_up_of<tensor::I4x2>(const ExpertProductParams&, ops::Stream&);
template <>
void run_down_of<tensor::I4x2>(const ExpertProductParams&, ops::Stream&);
template <>
void run_gate_up_of<I8Blocks>(const ExpertProductParams&, ops::Stream&);
template <>
void run_down_of<I8Blocks>(const ExpertProductParams&, ops::Stream&);
template <>
void run_gate_up_of<I8Channels>(const ExpertProductParams&, ops::Stream&);
template <>
void run_down_of<I8Channels>(const ExpertProductParams&, ops::Stream&);
template <>
void run_down_and_combine_of<tensor::Bf16>(const ExpertProductParams&, const CombineParams&,
                                           ops::Stream&);
template <>
void run_down_and_combine_of<tensor::F8E4M3>(const ExpertProductParams&, const CombineParams&,
                                             ops::Stream&);
template <>
void run_down_and_combine_of<tensor::I4x2>(const ExpertProductParams&, const CombineParams&,
                                           ops::Stream&);

}  // namespace fathom::cuda
