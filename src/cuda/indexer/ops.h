#pragma once
// The operators of the lightning indexer but for attention to its lists, which is attention's: keys, queries, scores,
// the choice of rows. Contracts: ops/index.h. Shapes were checked at the boundary; activations are bf16, cached keys
// f8_e4m3.
//
//   add_indexer(backend);      // puts them into the table
//
// Each only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_indexer(ops::Backend& backend);

void index_append(const ops::IndexAppendArgs& args, ops::Stream& stream);
void index_query(const ops::IndexQueryArgs& args, ops::Stream& stream);
void index_append_query(const ops::IndexAppendQueryArgs& args, ops::Stream& stream);
bool takes_index_append_query(const ops::IndexAppendQueryArgs& args, const ops::Stream& stream);
int64_t index_append_query_scratch(const ops::IndexAppendQueryArgs& args,
                                   const ops::Stream& stream);
void index_scores(const ops::IndexScoresArgs& args, ops::Stream& stream);
void top_rows(const ops::TopRowsArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
