#pragma once
// FP8 experts of 256 channels, as V3 and Kimi-K2 have them in ranks of eight, for a few tokens: two kernels, whose
// products are of whole warpgroups.
//
//   if (takes_few_tokens(sizes)) {
//     few_tokens_gate_up(args, h, stream);      // h = silu(gate) * up of every pair, quantised
//     few_tokens_down(args, h, combining, stream);
//   }
//
// Both find for themselves which experts have tokens. Internal to experts/; only enqueues.

#include <cstdint>

#include "cuda/experts/experts.h"
#include "cuda/gemm/stored.h"
#include "ops/stream.h"

namespace fathom::cuda {

struct FewTokensSizes {
  Stored weight = Stored::kF8;
  int64_t tokens = 0, hidden_size = 0, inter = 0;
  int64_t experts = 0, routed = 0, shared = 0;  // here; pairs of a token
};
bool takes_few_tokens(const FewTokensSizes& sizes);

struct FewTokensArgs {
  const void* x = nullptr;         // e4m3[tokens, hidden_size]
  const float* x_scale = nullptr;  // f32[tokens, hidden_size / 128]
  int64_t x_stride = 0;
  int64_t tokens = 0, hidden_size = 0;
  PairExperts of_pairs;
  const void* weight =
      nullptr;  // gate_up or down, e4m3[experts, 2, 256, hidden_size] or [experts, hidden_size, 256]
  const float* weight_scale = nullptr;  // of 128x128 blocks
  const void* shared_weight = nullptr;  // the same of one expert; null: there is none
  const float* shared_weight_scale = nullptr;
};
// The hidden vectors of the pairs.
struct FewTokensHidden {
  uint8_t* values = nullptr;  // e4m3[pairs, 256]
  float* scales = nullptr;    // f32[pairs, 2]
};
void few_tokens_gate_up(const FewTokensArgs& args, const FewTokensHidden& h, ops::Stream& stream);
void few_tokens_down(const FewTokensArgs& args, const FewTokensHidden& h,
                     const CombineParams& combining, ops::Stream& stream);

}  // namespace fathom::cuda
