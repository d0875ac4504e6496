#pragma once
// The operators of experts/: the experts that the gate chose (gate/ops.h). Contracts: ops/<operator>.h. Shapes were
// checked at the boundary; activations are bf16.
//
//   add_experts(backend);      // puts them and the gate into the table
//
// Each only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_experts(ops::Backend& backend);

void moe_experts(const ops::MoeExpertsArgs& args, ops::Stream& stream);
bool takes_moe_experts_shared(const ops::MoeExpertsSharedArgs& args, const ops::Stream& stream);
void moe_experts_shared(const ops::MoeExpertsSharedArgs& args, ops::Stream& stream);

int64_t moe_experts_scratch(const ops::MoeExpertsArgs& args, const ops::Stream& stream);
int64_t moe_experts_shared_scratch(const ops::MoeExpertsSharedArgs& args,
                                   const ops::Stream& stream);

}  // namespace fathom::cuda
