#include "cuda/linear/ops.h"

namespace fathom::cuda {

void add_linear(ops::Backend& backend) {
  backend.linear = {linear, linear_scratch, 0, {tensor::DType::kU4x2}};
  backend.linear_pair = {linear_pair, linear_pair_scratch, 0, {tensor::DType::kU4x2}};
  backend.head_linear = {head_linear, head_linear_scratch};
}

}  // namespace fathom::cuda
