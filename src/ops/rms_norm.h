#pragma once
// RMS normalisation with an optional residual add before it (Zhang & Sennrich 2019):
//   if residual: residual += x, v = residual, else v = x
//   out = v / sqrt(mean(v^2) + eps) * weight            (in float32)
//
// x         act[rows, dim]         rows may be strided
// weight    f32|bf16[dim]
// residual  act[rows, dim]         null allowed; updated in place
// out       act[rows, dim]         rows may be strided; may be x
//
// rms_norm_quantize, fused: rms_norm and, in the same pass, its rows quantised for the matrices that read
// them, to the bit
//   rms_norm(..., out);  quantize_fp8(out, quantised.values, quantised.scale);
// What is quantised are the values as `out` holds them, rounded to act, also where out is null.
// out        as above; null = only the quantised rows are wanted
// quantised  f8_e4m3[rows, dim] with f32[rows, ceil(dim / 128)]

#include "ops/activation.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct RmsNormArgs {
  tensor::Tensor x, weight;
  float eps = 1e-6f;
  tensor::Tensor residual, out;
};
void rms_norm(const RmsNormArgs& args, Stream& stream);

struct RmsNormQuantizeArgs {
  RmsNormArgs norm;
  Activation quantised;
};
void rms_norm_quantize(const RmsNormQuantizeArgs& args, Stream& stream);

}  // namespace fathom::ops
