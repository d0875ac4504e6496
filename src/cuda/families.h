#pragma once
// Each family of operators puts its own entries into the table.
//
// Internal to cuda/.

#include "ops/backend.h"

namespace fathom::cuda {

void add_linear(ops::Backend& backend);     // linear/: linear, linear_pair, head_linear
void add_experts(ops::Backend& backend);    // experts/: moe_experts
void add_attention(ops::Backend& backend);  // attention/: rope, cache, both forms of attention
void add_elementwise(
    ops::Backend& backend);                // elementwise/: norms, activations, rows, quantisation
void add_sampling(ops::Backend& backend);  // sampling/: gate, sample, step
void add_speculation(ops::Backend& backend);  // speculation/: verification of drafts, drafting

}  // namespace fathom::cuda
