#include "cuda/experts/gate/ops.h"
#include "cuda/experts/ops.h"
#include "cuda/gemm/large.h"

namespace fathom::cuda {

void add_experts(ops::Backend& backend) {
  backend.moe_gate = {moe_gate, moe_gate_scratch};
  backend.moe_experts = {moe_experts, moe_experts_scratch};
  // Many tokens of one expert are faster apart, and one form must take all rows that are to be invariant. The limit is
  // that of products whose rows have the same bits, or of few rows of an expert where they have kernels of their own.
  if (backend.batch_invariant) return;
  backend.moe_experts_shared = {.run = moe_experts_shared,
                                .scratch_bytes = moe_experts_shared_scratch,
                                .max_tokens = kMostSharedTokens,
                                .takes = takes_moe_experts_shared,
                                .lacks = {tensor::DType::kU4x2}};
}

}  // namespace fathom::cuda
