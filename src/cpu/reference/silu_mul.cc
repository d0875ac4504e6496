#include "ops/silu_mul.h"

#include "cpu/reference/matmul.h"
#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"

namespace fathom::cpu::reference {
namespace {

void silu_mul_row(const tensor::Tensor& gate_up, int64_t token, float* out) {
  const float* gate = gate_up.row<float>(token, 0);
  const float* up = gate_up.row<float>(token, 1);
  for (int64_t i = 0; i < gate_up.dim(2); ++i) out[i] = silu(gate[i]) * up[i];
}

}  // namespace

int64_t silu_mul_quantize_scratch(const ops::SiluMulQuantizeArgs& args, const ops::Stream&) {
  return args.gate_up.dim(2) * int64_t{sizeof(float)};
}

void silu_mul(const ops::SiluMulArgs& args, ops::Stream&) {
  for (int64_t token = 0; token < args.out.dim(0); ++token)
    silu_mul_row(args.gate_up, token, args.out.row<float>(token));
}

void silu_mul_quantize(const ops::SiluMulQuantizeArgs& args, ops::Stream& stream) {
  auto* row = static_cast<float*>(stream.scratch());
  for (int64_t token = 0; token < args.gate_up.dim(0); ++token) {
    silu_mul_row(args.gate_up, token, row);
    quantize_row(row, args.gate_up.dim(2), args.quantised.values.row<tensor::F8E4M3>(token),
                 args.quantised.scale.row<float>(token));
  }
}

}  // namespace fathom::cpu::reference
