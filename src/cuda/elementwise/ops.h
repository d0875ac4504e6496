#pragma once
// The operators of elementwise/: norms, activations, rows and quantisation. Contracts: ops/<operator>.h. Shapes were
// checked at the boundary; activations are bf16.
//
//   add_elementwise(backend);      // puts them into the table
//
// Each only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_elementwise(ops::Backend& backend);

void embedding(const ops::EmbeddingArgs& args, ops::Stream& stream);
void gather_rows(const ops::GatherRowsArgs& args, ops::Stream& stream);
void add_rows(const ops::AddRowsArgs& args, ops::Stream& stream);
void fill_from_table(const ops::FillFromTableArgs& args, ops::Stream& stream);
void rms_norm(const ops::RmsNormArgs& args, ops::Stream& stream);
void rms_norm_quantize(const ops::RmsNormQuantizeArgs& args, ops::Stream& stream);
void silu_mul(const ops::SiluMulArgs& args, ops::Stream& stream);
void silu_mul_quantize(const ops::SiluMulQuantizeArgs& args, ops::Stream& stream);
void quantize_fp8(const ops::QuantizeFp8Args& args, ops::Stream& stream);

}  // namespace fathom::cuda
