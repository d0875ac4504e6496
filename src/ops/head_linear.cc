#include "ops/head_linear.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of;

void head_linear(const HeadLinearArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dim tokens("tokens"), heads("heads"), in("in"), out("out");
  expect("x", args.x, act, {&tokens, &heads, &in});
  expect_one_of("weight", args.weight, {DType::kF32, DType::kBf16}, {&heads, &out, &in});
  expect("out", args.out, act, {&tokens, &heads, &out});
  // Only the heads: W_UV is a part of every head of kv_b_proj.
  FATHOM_CHECK(args.weight.stride(1) == in.value(),
               "weight rows have stride " << args.weight.stride(1) << ", must be " << in.value());
  dispatch("head_linear", args.weight.dtype(), stream.backend().head_linear, args, stream);
}

}  // namespace fathom::ops
