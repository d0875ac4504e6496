#pragma once
// Linear layer without bias: out = x * weight^T (+ out when accumulate).
//
// x       act[tokens, in], or quantised rows of an f8 weight (ops/activation.h)   rows may be strided
// weight  f32|bf16|f8_e4m3[out, in]
// scale   f32[ceil(out/128), ceil(in/128)]   only with f8 weights: w = q * scale of its 128x128 block
// out     act|f32[tokens, out]      rows may be strided; f32 always allowed (logits)
//
// f32 and bf16 weights: products and sums in float32.
// f8 weights: x is quantised per token and 128 channels (ops/quantize_fp8.h), the products of one
// 128-wide block of `in` are summed first, then sum * (x_scale * w_scale) is added in float32, blocks in
// rising order (DeepSeek-V3 report, section 3.3).
// accumulate: the finished product is added to out once, so it rounds like a product and an addition.
//
// linear_pair, fused: two products of the same rows in one call, to the bit
//   linear(x, a.weight, a.out);  linear(x, b.weight, b.out);
// The weights have one type. Gate and up whose scale blocks do not join, q_a and kv_a.

#include "ops/activation.h"
#include "ops/backend.h"
#include "tensor/scale_block.h"
#include "tensor/tensor.h"

namespace fathom::ops {

using tensor::kScaleBlock, tensor::num_scale_blocks;

// A weight matrix as stored: values and, for f8, block scales.
struct Weight {
  tensor::Tensor data, scale;
};

struct LinearArgs {
  Activation x;
  Weight weight;
  bool accumulate = false;
  tensor::Tensor out;
};
void linear(const LinearArgs& args, Stream& stream);

struct LinearPairArgs {
  struct Product {
    Weight weight;
    tensor::Tensor out;
  };
  Activation x;
  Product a, b;
};
void linear_pair(const LinearPairArgs& args, Stream& stream);

// For the boundary checks of operators with weights: the scale fits the weight [..., out, in], or is null
// when the weight is not f8.
void expect_block_scale(std::string_view name, const Weight& weight, int64_t in, int64_t out);

}  // namespace fathom::ops
