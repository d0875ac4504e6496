#pragma once
// The operator of attention/expanded/: MLA of prompts in the expanded form (ops/mla.h). Shapes were checked at the
// boundary.
//
//   add_expanded_attention(backend);      // puts it into the table
//
// Only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_expanded_attention(ops::Backend& backend);

}  // namespace fathom::cuda
