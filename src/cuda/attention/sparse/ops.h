#pragma once
// The operator of attention/sparse/: attention to lists of rows (ops/index.h), by the kernels of absorbed attention.
// Shapes were checked at the boundary.
//
//   add_sparse_attention(backend);      // puts it into the table
//
// Only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_sparse_attention(ops::Backend& backend);

}  // namespace fathom::cuda
