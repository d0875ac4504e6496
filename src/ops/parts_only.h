#pragma once
// A backend without its fused operators, so that layers run their parts instead: to compare, and to find which of both
// is at fault.
//
//   static const ops::Backend backend = ops::parts_only(cuda::backend());
//
// Pure function. Streams that the copy makes are those of the original.

#include "ops/backend.h"

namespace fathom::ops {

// Provides no operator of fused_operators(), and everything else that `backend` does.
Backend parts_only(const Backend& backend);

}  // namespace fathom::ops
