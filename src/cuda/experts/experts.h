#pragma once
// The kernels of the routed experts and what they hand to each other. A pair is (token, j), numbered token * j's + j;
// a group is some tokens of one expert.
//
//   sort_pairs(...);  run_gate_up(...);  [quantize_rows(h)]  run_down(...);  combine(...);
//
// Two tokens or so need no sorting: each pair is a group, and run_down_and_combine does the rest in one kernel.
// Internal to cuda/.

#include <cstdint>

#include "ops/stream.h"
#include "tensor/dtype.h"

namespace fathom::cuda {

struct ExpertGroup {
  int expert, first, count;  // of `pairs`
};

// Null groups: pair i is group i, of expert ids[i], -1 = none.
struct ExpertLists {
  const int32_t* ids = nullptr;         // i32[num_pairs]
  const ExpertGroup* groups = nullptr;  // [num_groups]
  const int* num_groups = nullptr;      // [1]
  const int* pairs = nullptr;           // i32[num_pairs], expert by expert
  int most_groups = 0;                  // what the host knows
};

struct ExpertProductParams {
  const char* x = nullptr;         // bf16 or, for f8 weights, e4m3[pairs / pairs_per_row, in]
  const float* x_scale = nullptr;  // f32[pairs / pairs_per_row, lines], f8 only
  int64_t x_stride_bytes = 0;
  int pairs_per_row = 1;
  const char* weight = nullptr;    // W[experts, 1 or 2, rows, in]
  const float* w_scale = nullptr;  // f32[experts, 1 or 2, ceil(rows / 128), lines], f8 only
  ExpertLists lists;
  int rows = 0, in = 0;
  // gate_up: h, bf16[pairs, rows], f32 with f8 weights. down: y, f32[pairs, rows].
  void* out = nullptr;
  bool is_aligned = false;  // all rows can be read in pieces of 16 bytes
  // Set by the launcher.
  int lines = 0, warps = 1, stages = 2, units = 0;
};

struct CombineParams {
  const int32_t* ids = nullptr;    // i32[tokens, per_token]
  const float* weights = nullptr;  // f32[tokens, per_token]
  void* out = nullptr;             // bf16[tokens, hidden_size]
  int64_t out_stride = 0;
  int tokens = 0, per_token = 0, hidden_size = 0;
  bool accumulate = false;
};

struct SortParams {
  const int32_t* ids = nullptr;
  ExpertGroup* groups = nullptr;
  int* num_groups = nullptr;
  int* pairs = nullptr;
  int num_pairs = 0, experts = 0, group_tokens = 8;
};

void sort_pairs(const SortParams& params, ops::Stream& stream);
void combine(const CombineParams& params, const float* y, ops::Stream& stream);

// `group_tokens` of the lists: 8 or 32.
void run_gate_up(tensor::DType weight, const ExpertProductParams& params, int group_tokens,
                 ops::Stream& stream);
void run_down(tensor::DType weight, const ExpertProductParams& params, int group_tokens,
              ops::Stream& stream);
// REQUIRES: null groups, aligned, weights of bf16 or f8.
void run_down_and_combine(tensor::DType weight, const ExpertProductParams& params,
                          const CombineParams& combining, ops::Stream& stream);

// Per type of weight, each in a file of its own.
template <class W>
void run_gate_up_of(const ExpertProductParams& params, int group_tokens, ops::Stream& stream);
template <class W>
void run_down_of(const ExpertProductParams& params, int group_tokens, ops::Stream& stream);
template <class W>
void run_down_and_combine_of(const ExpertProductParams& params, const CombineParams& combining,
                             ops::Stream& stream);
template <>
void run_gate_up_of<float>(const ExpertProductParams&, int, ops::Stream&);
template <>
void run_gate_up_of<tensor::Bf16>(const ExpertProductParams&, int, ops::Stream&);
template <>
void run_gate_up_of<tensor::F8E4M3>(const ExpertProductParams&, int, ops::Stream&);
template <>
void run_down_of<float>(const ExpertProductParams&, int, ops::Stream&);
template <>
void run_down_of<tensor::Bf16>(const ExpertProductParams&, int, ops::Stream&);
template <>
void run_down_of<tensor::F8E4M3>(const ExpertProductParams&, int, ops::Stream&);
template <>
void run_down_and_combine_of<tensor::Bf16>(const ExpertProductParams&, const CombineParams&,
                                           ops::Stream&);
template <>
void run_down_and_combine_of<tensor::F8E4M3>(const ExpertProductParams&, const CombineParams&,
                                             ops::Stream&);

}  // namespace fathom::cuda
