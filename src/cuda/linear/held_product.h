#pragma once
// Products of 1 to 8 rows with FP8 or bf16 matrices of which every block has its whole share on the chip before the
// rows come.
//
//   if (is_held(Stored::kF8, params, params.a)) run_held_product(Stored::kF8, params, stream);
//
// Internal to cuda/linear/.

#include "cuda/linear/product.h"

namespace fathom::cuda {

// Whether the matrix is taken, by its sizes and place alone: of its calls of few rows all have the same bits.
bool is_held(Stored weight, const ProductParams& params, const ProductPart& part);

// REQUIRES: is_held() of each part that there is, 1 to 8 tokens, params.x_scale of FP8.
void run_held_product(Stored weight, const ProductParams& params, ops::Stream& stream);

}  // namespace fathom::cuda
