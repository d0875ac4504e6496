#pragma once
// Token embedding: out[i] = table[ids[i] - first_id], zeros where the table does not have the row: of ranks that hold
// the vocabulary in parts all but one give zeros.
//
// ids    i32[tokens]                   in [0, vocab_size)
// table  f32|bf16[rows, hidden_size]   of the ids [first_id, first_id + rows)
// out    act[tokens, hidden_size]      rows may be strided

#include "ops/backend.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct EmbeddingArgs {
  tensor::Tensor ids, table, out;
  int64_t first_id = 0;
  int64_t vocab_size = 0;  // 0 = the table has all rows
};
void embedding(const EmbeddingArgs& args, Stream& stream);

}  // namespace fathom::ops
