#pragma once
// The operators of cache/: rotation and the rows of the cache. Contracts: ops/<operator>.h. Shapes were checked at the
// boundary; activations are bf16.
//
//   add_cache(backend);      // puts them into the table
//
// Each only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_cache(ops::Backend& backend);

void rope_table(const ops::RopeTableArgs& args, ops::Stream& stream);
void rope(const ops::RopeArgs& args, ops::Stream& stream);
void kv_append(const ops::KvAppendArgs& args, ops::Stream& stream);
void kv_gather(const ops::KvGatherArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
