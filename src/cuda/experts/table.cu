#include "cuda/families.h"
#include "cuda/ops.h"

namespace fathom::cuda {

void add_experts(ops::Backend& backend) {
  backend.moe_experts = {moe_experts, moe_experts_scratch};
}

}  // namespace fathom::cuda
