#pragma once
// mla_query (ops/mla_query.h) of more tokens than few, whose queries are given: rope, the cache's rows and the product
// with W_UK as one kernel.
//
//   if (takes_many_queries(args, stream)) many_queries(args, stream);
//
// Internal to cuda/decode/. They only enqueue.

#include "ops/mla_query.h"

namespace fathom::cuda::decode {

// By what queries and W_UK are; what the cache is the caller knows.
bool takes_many_queries(const ops::MlaQueryArgs& args, const ops::Stream& stream);
// REQUIRES: takes_many_queries().
void many_queries(const ops::MlaQueryArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda::decode
