#pragma once
// What happens to rows between large products: copied or quantised to where a product wants them, and summed over the
// experts of a token. All bound by memory.
//
//   quantise_rows({.x = x, .x_stride = in, .tokens = tokens, .dim = in, .q = q, .scale = scale}, stream);
//
// Sizes are multiples of 16, rows 16-byte aligned. Only enqueues.

#include <cstdint>

#include "ops/stream.h"
#include "tensor/dtype.h"

namespace fathom::cuda {

// Rows of tokens to rows of a product: token t to rows row_of_pair[t, 0..copies), -1 = none; null: to row t.
struct RowArgs {
  const tensor::Bf16* x = nullptr;      // bf16[tokens, dim], or
  const tensor::F8E4M3* x_q = nullptr;  // f8[tokens, dim], quantised before
  const float* x_scale = nullptr;       // f32[tokens, ceil(dim / 128)], of x_q
  int64_t x_stride = 0, tokens = 0, dim = 0;
  const int* row_of_pair = nullptr;  // i32[tokens, copies]
  int64_t copies = 1;
  tensor::Bf16* out = nullptr;  // bf16[rows, dim], or
  tensor::F8E4M3* q = nullptr;  // f8[rows, dim]
  float* scale = nullptr;       // f32[rows, ceil(dim / 128)], of q
};
void copy_rows(const RowArgs& args, ops::Stream& stream);      // x to out, or x_q to q
void quantise_rows(const RowArgs& args, ops::Stream& stream);  // x to q

// out[t] = sum over j of weights[t, j] * y[row_of_pair[t, j]] (+ out), j rising, without the pairs that have no expert.
struct CombineArgs {
  const tensor::Bf16* y = nullptr;   // bf16[rows, dim]
  const float* weights = nullptr;    // f32[tokens, copies]
  const int* row_of_pair = nullptr;  // i32[tokens, copies]
  int64_t tokens = 0, copies = 0, dim = 0;
  bool accumulate = false;
  tensor::Bf16* out = nullptr;  // bf16[tokens, dim]
  int64_t out_stride = 0;
};
void combine_rows(const CombineArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
