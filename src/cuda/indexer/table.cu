#include "cuda/indexer/ops.h"

namespace fathom::cuda {

void add_indexer(ops::Backend& backend) {
  // Keys in float32 are for oracles, with activations in float32.
  const std::vector<tensor::DType> no_f32 = {tensor::DType::kF32};
  backend.index_append = {.run = index_append, .lacks = no_f32};
  backend.index_query = {.run = index_query, .lacks = no_f32};
  backend.index_append_query = {.run = index_append_query,
                                .scratch_bytes = index_append_query_scratch,
                                .takes = takes_index_append_query,
                                .lacks = no_f32};
  backend.index_scores = {.run = index_scores, .lacks = no_f32};
  backend.top_rows = {.run = top_rows};
}

}  // namespace fathom::cuda
