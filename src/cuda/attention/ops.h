#pragma once
// The operators of attention/: its absorbed form. Contracts: ops/<operator>.h. Shapes were checked at the boundary;
// activations are bf16.
//
//   add_attention(backend);      // puts them into the table
//
// Each only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_attention(ops::Backend& backend);

void mla_absorbed(const ops::MlaAbsorbedArgs& args, ops::Stream& stream);

int64_t mla_absorbed_scratch(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream);

}  // namespace fathom::cuda
