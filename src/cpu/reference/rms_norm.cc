#include "ops/rms_norm.h"

#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"

namespace fathom::cpu::reference {

int64_t rms_norm_scratch(const ops::RmsNormArgs& args, const ops::Stream&) {
  return args.x.dim(1) * int64_t{sizeof(float)};
}

void rms_norm(const ops::RmsNormArgs& args, ops::Stream& stream) {
  const int64_t rows = args.x.dim(0), dim = args.x.dim(1);
  auto* weight_row = static_cast<float*>(stream.scratch());
  const float* weight = as_floats(args.weight.data(), args.weight.dtype(), dim, weight_row);
  for (int64_t row = 0; row < rows; ++row) {
    const float* v = args.x.row<float>(row);
    if (!args.residual.is_null()) {
      float* residual = args.residual.row<float>(row);
      add_scaled(residual, 1.0f, v, dim);
      v = residual;
    }
    const float factor = inverse_rms(v, dim, args.eps);
    float* out = args.out.row<float>(row);
    for (int64_t i = 0; i < dim; ++i) out[i] = v[i] * factor * weight[i];
  }
}

}  // namespace fathom::cpu::reference
