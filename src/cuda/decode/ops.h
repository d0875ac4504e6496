#pragma once
// mla_decode (ops/mla_decode.h): attention of a step that decodes few tokens, from compressed queries to the heads'
// outputs, as one kernel. Shapes were checked at the boundary; activations are bf16.
//
//   add_decode(backend);                  // the entry and its limit of rows
//
// It only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_decode(ops::Backend& backend);

}  // namespace fathom::cuda
