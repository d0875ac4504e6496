#include "ops/head_linear.h"

#include "ops/boundary.h"
#include "ops/mla.h"

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

struct Dims {
  Dim tokens{"tokens"}, heads{"heads"}, in{"in"}, out{"out"};
};

void expect_product(const Tensor& x, const Weight& weight, DType act, Dims& dims) {
  expect("x", x, act, {&dims.tokens, &dims.heads, &dims.in});
  expect_one_of("weight", weight.data, {DType::kF32, DType::kBf16, DType::kF8E4M3},
                {&dims.heads, &dims.out, &dims.in});
  expect_whole_rows("weight", weight.data);
  expect_scale_of_heads(weight, dims.heads);
}

}  // namespace

void head_linear(const HeadLinearArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dims dims;
  expect_product(args.x, args.weight, act, dims);
  expect("out", args.out, act, {&dims.tokens, &dims.heads, &dims.out});
  dispatch("head_linear", args.weight.data.dtype(), stream.backend().head_linear, args, stream);
}

void head_linear_quantize(const HeadLinearQuantizeArgs& args, Stream& stream) {
  Dims dims;
  expect_product(args.x, args.weight, stream.backend().act, dims);
  Dim all("heads * out", dims.heads.value() * dims.out.value());
  expect_quantised("out", args.out, {&dims.tokens, &all});
  if (args.attention != nullptr) {
    expect_absorbed(*args.attention, stream);
    FATHOM_CHECK(args.attention->out.data() == args.x.data(), "x is not attention's output");
  }
  dispatch("head_linear_quantize", args.weight.data.dtype(), stream.backend().head_linear_quantize,
           args, stream);
}

}  // namespace fathom::ops
