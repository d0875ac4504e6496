#include "ops/head_linear.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of, tensor::Tensor;

namespace {

// Only the heads may be strided: W_UV is a part of every head of kv_b_proj.
void expect_whole_rows(const char* what, const Tensor& of_heads) {
  FATHOM_CHECK(of_heads.stride(1) == of_heads.dim(2), what << " rows have stride "
                                                           << of_heads.stride(1) << ", must be "
                                                           << of_heads.dim(2));
}

void expect_scale_of_heads(const Weight& weight, Dim& heads) {
  const Tensor& data = weight.data;
  if (data.dtype() != DType::kF8E4M3)
    return expect_weight_scale("scale", weight, data.dim(2), data.dim(1));
  Dim out_blocks("blocks of out", num_scale_blocks(data.dim(1)));
  Dim in_blocks("blocks of in", num_scale_blocks(data.dim(2)));
  expect("scale", weight.scale, DType::kF32, {&heads, &out_blocks, &in_blocks});
  expect_whole_rows("scale", weight.scale);
}

}  // namespace

void head_linear(const HeadLinearArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dim tokens("tokens"), heads("heads"), in("in"), out("out");
  expect("x", args.x, act, {&tokens, &heads, &in});
  expect_one_of("weight", args.weight.data, {DType::kF32, DType::kBf16, DType::kF8E4M3},
                {&heads, &out, &in});
  expect("out", args.out, act, {&tokens, &heads, &out});
  expect_whole_rows("weight", args.weight.data);
  expect_scale_of_heads(args.weight, heads);
  dispatch("head_linear", args.weight.data.dtype(), stream.backend().head_linear, args, stream);
}

}  // namespace fathom::ops
