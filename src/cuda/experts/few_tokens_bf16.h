#pragma once
// bf16 experts for a few tokens: two kernels whose weights come by the copy engine, a ring for each warp.
//
//   if (takes_few_tokens_bf16(sizes)) {
//     few_gate_up_bf16(args, h, stream);        // h = silu(gate) * up of every pair
//     few_down_bf16(args, h, combining, stream);
//   }
//
// Both find for themselves which experts have tokens. Rows have the bits of the other kernels of experts/. Internal to
// experts/; only enqueues.

#include <cstdint>

#include "cuda/experts/few_tokens.h"
#include "ops/stream.h"
#include "tensor/dtype.h"

namespace fathom::cuda {

bool takes_few_tokens_bf16(const FewTokensSizes& sizes);

struct FewTokensBf16Args {
  const tensor::Bf16* x = nullptr;  // [tokens, hidden_size]
  int64_t x_stride = 0;
  int tokens = 0, hidden_size = 0, inter = 0;
  PairExperts of_pairs;
  const void* gate_up = nullptr;         // bf16[experts, 2, inter, hidden_size]
  const void* down = nullptr;            // bf16[experts, hidden_size, inter]
  const void* shared_gate_up = nullptr;  // bf16[2, shared * inter, hidden_size]
  const void* shared_down = nullptr;     // bf16[hidden_size, shared * inter]
};
// h: bf16[pairs, inter].
void few_gate_up_bf16(const FewTokensBf16Args& args, tensor::Bf16* h, ops::Stream& stream);
void few_down_bf16(const FewTokensBf16Args& args, const tensor::Bf16* h,
                   const CombineParams& combining, ops::Stream& stream);

}  // namespace fathom::cuda
