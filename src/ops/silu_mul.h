#pragma once
// Gated activation of the FFN: out = silu(gate) * up, silu(v) = v / (1 + exp(-v)) (Shazeer 2020, SwiGLU).
//
// gate_up  act[tokens, 2, inter]   gate at 0, up at 1
// out      act[tokens, inter]
//
// silu_mul_quantize, fused: the rows quantised for the matrix that reads them, to the bit
//   silu_mul(..., out);  quantize_fp8(out, quantised.values, quantised.scale);
// quantised  f8_e4m3[tokens, inter] with f32[tokens, ceil(inter / 128)]

#include "ops/activation.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct SiluMulArgs {
  tensor::Tensor gate_up, out;
};
void silu_mul(const SiluMulArgs& args, Stream& stream);

struct SiluMulQuantizeArgs {
  tensor::Tensor gate_up;
  Activation quantised;
};
void silu_mul_quantize(const SiluMulQuantizeArgs& args, Stream& stream);

}  // namespace fathom::ops
