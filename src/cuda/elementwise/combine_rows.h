#pragma once
// What the experts gave for a token's pairs, summed. Bound by memory.
//
//   combine_rows({.y = y, .weights = weights, .row_of_pair = row_of_pair, ...}, stream);
//
// Sizes are multiples of 16, rows 16-byte aligned. Only enqueues. For cuda/gemm, which sorts the pairs.

#include <cstdint>

#include "ops/stream.h"
#include "tensor/dtype.h"

namespace fathom::cuda {

// out[t] = sum over j of weights[t, j] * y[row_of_pair[t, j]] (+ out), j rising, without the pairs that have no expert.
struct CombineArgs {
  const tensor::Bf16* y = nullptr;   // bf16[rows, dim]
  const float* weights = nullptr;    // f32[tokens, copies - shared]
  const int* row_of_pair = nullptr;  // i32[tokens, copies]
  int64_t tokens = 0, copies = 0, dim = 0;
  int64_t shared = 0;  // the first copies, which have no weights: 1
  bool accumulate = false;
  tensor::Bf16* out = nullptr;  // bf16[tokens, dim]
  int64_t out_stride = 0;
};
void combine_rows(const CombineArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
