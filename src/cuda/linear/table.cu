#include "cuda/linear/ops.h"

namespace fathom::cuda {

void add_linear(ops::Backend& backend) {
  backend.linear = {linear, linear_scratch};
  backend.linear_pair = {linear_pair, linear_pair_scratch};
  backend.head_linear = {head_linear, head_linear_scratch};
}

}  // namespace fathom::cuda
