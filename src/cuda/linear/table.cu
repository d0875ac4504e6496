#include "cuda/linear/ops.h"

namespace fathom::cuda {

void add_linear(ops::Backend& backend) {
  using tensor::DType;
  backend.linear = {
      .run = linear, .scratch_bytes = linear_scratch, .lacks = {DType::kI8, DType::kI4x2}};
  backend.linear_pair = {.run = linear_pair,
                         .scratch_bytes = linear_pair_scratch,
                         .lacks = {DType::kI8, DType::kI4x2}};
  backend.head_linear = {head_linear, head_linear_scratch};
}

}  // namespace fathom::cuda
