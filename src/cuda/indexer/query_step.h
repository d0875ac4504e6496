#pragma once
// index_append_query of few tokens from compressed queries: their norm, wq_b and all behind it as one kernel.
//
//   if (takes_query_step(args, stream)) run_query_step(args, stream);
//
// Internal to cuda/indexer/.

#include "ops/index.h"
#include "ops/stream.h"

namespace fathom::cuda {

// REQUIRES: args.q_a.
bool takes_query_step(const ops::IndexAppendQueryArgs& args, const ops::Stream& stream);
void run_query_step(const ops::IndexAppendQueryArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
