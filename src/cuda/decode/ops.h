#pragma once
// Attention of steps that decode few tokens: from compressed queries to the heads' outputs as one kernel
// (ops/mla_decode.h), and the beginning and the end of that (ops/mla_query.h, head_linear_quantize of
// ops/head_linear.h). Shapes were checked at the boundary; activations are bf16.
//
//   add_decode(backend);                  // the entries and the limit of rows
//
// They only enqueue. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_decode(ops::Backend& backend);

void mla_decode(const ops::MlaDecodeArgs& args, ops::Stream& stream);
bool takes_mla_decode(const ops::MlaDecodeArgs& args, const ops::Stream& stream);
void mla_query(const ops::MlaQueryArgs& args, ops::Stream& stream);
bool takes_mla_query(const ops::MlaQueryArgs& args, const ops::Stream& stream);
void head_linear_quantize(const ops::HeadLinearQuantizeArgs& args, ops::Stream& stream);
bool takes_head_linear_quantize(const ops::HeadLinearQuantizeArgs& args, const ops::Stream& stream);
int64_t head_linear_quantize_scratch(const ops::HeadLinearQuantizeArgs& args,
                                     const ops::Stream& stream);

}  // namespace fathom::cuda
