#pragma once
// The best tokens of each row of logits: what a drafter says after a node (ops/draft.h).
//   logits    f32[rows, vocab_size]   rows may be strided
//   ids       i32[rows, k]            out: larger logits first, equal ones by the smaller id; -0 equals +0. -1 past
//                                     vocab_size
//   logprobs  f32[rows, k]            out: log softmax of the row at these ids; 0 where the id is -1
// A row with a NaN or an infinity has no best tokens: its ids are -1.
//
//   ops::top_k({.logits = logits, .ids = ids, .logprobs = logprobs}, stream);

#include "ops/backend.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct TopKArgs {
  tensor::Tensor logits, ids, logprobs;

  int64_t k() const { return ids.dim(1); }
};
void top_k(const TopKArgs& args, Stream& stream);

}  // namespace fathom::ops
