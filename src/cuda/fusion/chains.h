#pragma once
// Chains of element-wise operators (ops/chain.h) that run as one kernel each, compiled at run time (cuda/jit/jit.h).
//
//   fuse_chains(/*max_rows=*/64);      // --enable-fusion; at the start of the program, behind set_jit()
//
// Not thread-safe: comes before there are streams.

#include <cstdint>

#include "ops/chain.h"

namespace fathom::cuda {

// From now on chains of at most so many rows run as one kernel, once it is there. 0: none. Returns what runs them, null
// where nothing does; for one number of rows always the same.
ops::ChainRunner* fuse_chains(int64_t max_rows);

}  // namespace fathom::cuda
