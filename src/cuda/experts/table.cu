#include "cuda/experts/experts.h"
#include "cuda/families.h"
#include "cuda/ops.h"

namespace fathom::cuda {

void add_experts(ops::Backend& backend) {
  backend.moe_experts = {moe_experts, moe_experts_scratch};
  // Many tokens of one expert are faster apart, and one form must take all rows that are to be invariant.
  if (backend.batch_invariant) return;
  backend.moe_experts_shared = {moe_experts_shared, moe_experts_shared_scratch};
  backend.moe_experts_shared_max_tokens = kMaxSharedTokens;
}

}  // namespace fathom::cuda
