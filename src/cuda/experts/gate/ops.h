#pragma once
// The operator of experts/gate/: which experts a token goes to. Contract: ops/moe.h. Shapes were checked at the
// boundary; activations are bf16. It is put into the table with the experts (experts/ops.h).
//
// It only enqueues. Thread-safe for distinct streams.

#include "ops/moe.h"

namespace fathom::cuda {

void moe_gate(const ops::MoeGateArgs& args, ops::Stream& stream);
int64_t moe_gate_scratch(const ops::MoeGateArgs& args, const ops::Stream& stream);

}  // namespace fathom::cuda
