#include "ops/silu_mul.h"

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::expect;

void silu_mul(const SiluMulArgs& args, Stream& stream) {
  const tensor::DType act = stream.backend().act;
  Dim tokens("tokens"), two("gate and up", 2), inter("inter");
  expect("gate_up", args.gate_up, act, {&tokens, &two, &inter});
  expect("out", args.out, act, {&tokens, &inter});
  expect_contiguous("gate_up", args.gate_up);
  expect_contiguous("out", args.out);
  dispatch("silu_mul", act, stream.backend().silu_mul, args, stream);
}

void silu_mul_quantize(const SiluMulQuantizeArgs& args, Stream& stream) {
  const tensor::DType act = stream.backend().act;
  Dim tokens("tokens"), two("gate and up", 2), inter("inter");
  expect("gate_up", args.gate_up, act, {&tokens, &two, &inter});
  expect_quantised("quantised", args.quantised, {&tokens, &inter});
  expect_contiguous("gate_up", args.gate_up);
  dispatch("silu_mul_quantize", act, stream.backend().silu_mul_quantize, args, stream);
}

}  // namespace fathom::ops
