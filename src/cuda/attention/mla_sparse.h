#pragma once
// Attention to lists of rows (ops/index.h), by the kernels of absorbed attention. Shapes were checked at the boundary.
// Only enqueues. Thread-safe for distinct streams.

#include "ops/index.h"

namespace fathom::cuda {

void mla_sparse(const ops::MlaSparseArgs& args, ops::Stream& stream);
int64_t mla_sparse_scratch(const ops::MlaSparseArgs& args, const ops::Stream& stream);

}  // namespace fathom::cuda
