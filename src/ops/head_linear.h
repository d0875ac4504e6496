#pragma once
// One small matrix product per attention head: out[t, h] = weight[h] * x[t, h]. The absorbed W_UK and W_UV
// of MLA (DeepSeek-V2 report, section 2.1.2).
//
//   ops::head_linear({.x = q_nope, .weight = {.data = w_uk, .scale = {}}, .out = q_latent}, stream);
//
// x       act[tokens, heads, in]                 rows and heads may be strided
// weight  f32|bf16|f8_e4m3[heads, out, in]       heads may be strided, each [out, in] is contiguous
// scale   f32[heads, ceil(out/128), ceil(in/128)]   only with f8 weights: w = q * scale of its 128x128 block;
//                                                heads may be strided, the scales of each are contiguous
// out     act[tokens, heads, out]                rows and heads may be strided
//
// A head is a product of ops/linear.h: with f8 weights each head's part of a row is quantised by itself, per 128
// channels of `in`. A block of scales belongs to one head: a part of a larger matrix (W_UV in kv_b_proj) can be
// taken as it is only where its first row in every head is a multiple of 128.
//
// head_linear_quantize, fused: head_linear, then quantize_fp8 of the rows that the heads' outputs make together
// (ops/quantize_fp8.h). A backend's entry takes some calls (Operator::takes), and all others are made of the parts.
//   out     f8_e4m3[tokens, heads * out] with f32[tokens, ceil(heads * out / 128)]
//   attention   null, or the call of mla_absorbed whose output is x: it runs as a part of this, and x may be anything
//               afterwards

#include "ops/activation.h"
#include "ops/backend.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct HeadLinearArgs {
  tensor::Tensor x;
  Weight weight;
  tensor::Tensor out;
};
void head_linear(const HeadLinearArgs& args, Stream& stream);

struct MlaAbsorbedArgs;

struct HeadLinearQuantizeArgs {
  tensor::Tensor x;
  Weight weight;
  Activation out;
  const MlaAbsorbedArgs* attention = nullptr;
};
// REQUIRES: the stream's backend takes it.
void head_linear_quantize(const HeadLinearQuantizeArgs& args, Stream& stream);

}  // namespace fathom::ops
