#pragma once
// Each family of operators puts its own entries into the table.
//
// Internal to cuda/.

#include "ops/backend.h"

namespace fathom::cuda {

// Each adds to the table what the folder of its name holds:
//   linear/       linear, linear_pair, head_linear
//   experts/      moe_experts
//   attention/    rope, cache, both forms of attention
//   elementwise/  norms, activations, rows, quantisation
//   sampling/     gate, sample, step
//   speculation/  verification of drafts, drafting
void add_linear(ops::Backend& backend);
void add_experts(ops::Backend& backend);
void add_attention(ops::Backend& backend);
void add_elementwise(ops::Backend& backend);
void add_sampling(ops::Backend& backend);
void add_speculation(ops::Backend& backend);

}  // namespace fathom::cuda
