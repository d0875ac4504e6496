#include "ops/rms_norm.h"

#include "cpu/reference/matmul.h"
#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"
#include "cpu/stream.h"

namespace fathom::cpu::reference {

namespace {

struct NormScratch {
  float* weight;  // [dim]
  float* out;     // [dim], where nobody else wants the row
};

NormScratch carve(const ops::RmsNormQuantizeArgs& args, ScratchArena& arena) {
  const int64_t dim = args.norm.x.dim(1);
  return {.weight = arena.take<float>(dim), .out = arena.take<float>(dim)};
}

void norm_row(const ops::RmsNormArgs& args, int64_t row, const float* weight, float* out) {
  const int64_t dim = args.x.dim(1);
  const float* v = args.x.row<float>(row);
  if (!args.residual.is_null()) {
    float* residual = args.residual.row<float>(row);
    add_scaled(residual, 1.0f, v, dim);
    v = residual;
  }
  const float factor = inverse_rms(v, dim, args.eps);
  for (int64_t i = 0; i < dim; ++i) out[i] = v[i] * factor * weight[i];
}

}  // namespace

int64_t rms_norm_scratch(const ops::RmsNormArgs& args, const ops::Stream&) {
  return args.x.dim(1) * int64_t{sizeof(float)};
}

int64_t rms_norm_quantize_scratch(const ops::RmsNormQuantizeArgs& args, const ops::Stream&) {
  ScratchArena arena;
  carve(args, arena);
  return arena.bytes();
}

void rms_norm(const ops::RmsNormArgs& args, ops::Stream& stream) {
  auto* weight_row = static_cast<float*>(stream.scratch());
  const float* weight =
      as_floats(args.weight.data(), args.weight.dtype(), args.x.dim(1), weight_row);
  for (int64_t row = 0; row < args.x.dim(0); ++row)
    norm_row(args, row, weight, args.out.row<float>(row));
}

void rms_norm_quantize(const ops::RmsNormQuantizeArgs& args, ops::Stream& stream) {
  const ops::RmsNormArgs& norm = args.norm;
  const int64_t dim = norm.x.dim(1);
  ScratchArena arena(stream.scratch());
  const NormScratch scratch = carve(args, arena);
  const float* weight = as_floats(norm.weight.data(), norm.weight.dtype(), dim, scratch.weight);
  for (int64_t row = 0; row < norm.x.dim(0); ++row) {
    float* out = norm.out.is_null() ? scratch.out : norm.out.row<float>(row);
    norm_row(norm, row, weight, out);
    quantize_row(out, dim, args.quantised.values.row<tensor::F8E4M3>(row),
                 args.quantised.scale.row<float>(row));
  }
}

}  // namespace fathom::cpu::reference
