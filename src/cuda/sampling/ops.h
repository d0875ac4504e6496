#pragma once
// The operators of sampling/: sampling, the best tokens, and the slots of a step. Contracts: ops/<operator>.h. Shapes
// were checked at the boundary; activations are bf16.
//
//   add_sampling(backend);      // puts them into the table
//
// Each only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_sampling(ops::Backend& backend);

void sample(const ops::SampleArgs& args, ops::Stream& stream);
void top_k(const ops::TopKArgs& args, ops::Stream& stream);
void step_inputs(const ops::StepInputsArgs& args, ops::Stream& stream);
void commit_tokens(const ops::CommitTokensArgs& args, ops::Stream& stream);
void write_words(const ops::WriteWordsArgs& args, ops::Stream& stream);
void count_tokens(const ops::CountTokensArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda
