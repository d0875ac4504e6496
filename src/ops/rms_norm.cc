#include "ops/rms_norm.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of, tensor::expect_or_null;

namespace {

void expect_norm(const RmsNormArgs& args, DType act, Dim& rows, Dim& dim) {
  expect("x", args.x, act, {&rows, &dim});
  expect_one_of("weight", args.weight, {DType::kF32, DType::kBf16}, {&dim});
  expect_or_null("residual", args.residual, act, {&rows, &dim});
  expect_contiguous("residual", args.residual);
}

}  // namespace

void rms_norm(const RmsNormArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dim rows("rows"), dim("dim");
  expect_norm(args, act, rows, dim);
  expect("out", args.out, act, {&rows, &dim});
  dispatch("rms_norm", args.weight.dtype(), stream.backend().rms_norm, args, stream);
}

void rms_norm_quantize(const RmsNormQuantizeArgs& args, Stream& stream) {
  const DType act = stream.backend().act;
  Dim rows("rows"), dim("dim");
  expect_norm(args.norm, act, rows, dim);
  expect_or_null("out", args.norm.out, act, {&rows, &dim});
  expect_quantised("quantised", args.quantised, {&rows, &dim});
  dispatch("rms_norm_quantize", args.norm.weight.dtype(), stream.backend().rms_norm_quantize, args,
           stream);
}

}  // namespace fathom::ops
