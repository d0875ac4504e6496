#include "cuda/elementwise/ops.h"

namespace fathom::cuda {

void add_elementwise(ops::Backend& backend) {
  backend.embedding = {embedding};
  backend.gather_rows = {gather_rows};
  backend.add_rows = {add_rows};
  backend.fill_from_table = {fill_from_table};
  backend.rms_norm = {rms_norm};
  backend.rms_norm_quantize = {rms_norm_quantize};
  backend.silu_mul = {silu_mul};
  backend.silu_mul_quantize = {silu_mul_quantize};
  backend.quantize_fp8 = {quantize_fp8};
}

}  // namespace fathom::cuda
