#pragma once
// Products of a batch: more rows of activations than product.h streams best, fewer than gemm/large.h wants.
//
//   if (tokens > kMaxStreamedTokens && run_batch_product(Stored::kBf16, params, stream)) return;
//
// Internal to cuda/.

#include <cstdint>

#include "cuda/linear/product.h"
#include "ops/linear.h"
#include "tuned/choice.h"

namespace fathom::cuda {

// Calls of so many rows at most run on the streaming kernels, so their rows have the same bits in any company.
inline constexpr int64_t kMaxStreamedTokens = tuned::kMaxStreamedRows;
// Calls of so many at most, and more than those, run here, and theirs have. Larger ones are gemm/large.h's, but those
// of heads, which run here too and have the bits of one another.
inline constexpr int64_t kMaxBatchTokens = tuned::kMaxBatchRows;

// Whether it also takes more tokens than that, of a matrix without heads: FP8 with so few outputs that all tiles run at
// once. A row then has gemm/'s bits, whose order of sums it is.
bool takes_many_rows(Stored weight, const ProductParams& params);
// Whether it takes these types, sizes and strides; if so it has enqueued the product.
// REQUIRES: tokens, heads and a.rows are not 0.
bool run_batch_product(Stored weight, const ProductParams& params, ops::Stream& stream);

// Whether bf16 heads are a product of these kernels.
bool takes_heads_of_batch(const ProductParams& params);
// A product for each head, as head_linear's, without its outputs.
ProductParams head_product(const tensor::Tensor& x, const ops::Weight& weight);

}  // namespace fathom::cuda
