#pragma once
// A matrix's copy in FP8, which is made when it has been loaded: for products that need not be exact, such as those of
// drafts.
//
//   const ops::Weight copy = allocate_fp8_copy(lm_head, builder);
//   fill_fp8_copy(lm_head, copy, stream);
//
// Filling waits for the stream and computes on a few threads of its own.

#include "layers/weight_builder.h"
#include "ops/linear.h"
#include "ops/stream.h"

namespace fathom::layers {

// Memory alone: f8_e4m3 of the matrix's shape, with scales of 128x128.
ops::Weight allocate_fp8_copy(const tensor::Tensor& matrix, WeightBuilder& builder);
// matrix: bf16, contiguous, on the device, as the copy is.
void fill_fp8_copy(const tensor::Tensor& matrix, const ops::Weight& copy, ops::Stream& stream);

}  // namespace fathom::layers
