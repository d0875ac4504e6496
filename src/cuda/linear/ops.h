#pragma once
// The operators of linear/: products with weights. Contracts: ops/<operator>.h. Shapes were checked at the boundary;
// activations are bf16.
//
//   add_linear(backend);      // puts them into the table
//
// Each only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_linear(ops::Backend& backend);

void linear(const ops::LinearArgs& args, ops::Stream& stream);
void linear_pair(const ops::LinearPairArgs& args, ops::Stream& stream);
void head_linear(const ops::HeadLinearArgs& args, ops::Stream& stream);

int64_t linear_scratch(const ops::LinearArgs& args, const ops::Stream& stream);
int64_t linear_pair_scratch(const ops::LinearPairArgs& args, const ops::Stream& stream);
// head_linear_quantize of 9 to 128 tokens: W_UV of bf16 heads with 128 outputs each. decode/ takes fewer.
bool takes_heads_quantize(const ops::HeadLinearQuantizeArgs& args, const ops::Stream& stream);
// REQUIRES: takes_heads_quantize().
void heads_quantize(const ops::HeadLinearQuantizeArgs& args, ops::Stream& stream);

int64_t head_linear_scratch(const ops::HeadLinearArgs& args, const ops::Stream& stream);

}  // namespace fathom::cuda
