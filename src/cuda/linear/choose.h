#pragma once
// How products of few rows are divided: as was measured for the matrix (tuned/table.h), else by the rule of plan.h and
// the one beside it here.
//
//   take_choices(DType::kF8E4M3, params, stream);                      // run_product(), once
//   const Split split = choose_split(params.a, lines, row_tiles);      // the launchers
//
// Internal to cuda/linear/.

#include "cuda/linear/plan.h"
#include "cuda/linear/product.h"

namespace fathom::cuda {

// Looks up what was measured. Nothing for matrices of heads, and nothing with --deterministic: there one division must
// suit all numbers of rows.
void take_choices(tensor::DType weight, ProductParams& params, const ops::Stream& stream);

// Split-K of the streaming kernels. row_tiles: 16 rows each, of all heads together.
Split choose_split(const ProductPart& part, int64_t lines, int64_t row_tiles);
// Stages of a warp's ring of the streaming kernel; `by_rule` where nothing was measured, or for a pair.
int choose_stages(const ProductParams& params, int64_t lines_per_warp, int by_rule);
// Split-K of the batch kernel: blocks that share a tile of rows.
int choose_group(const ProductPart& part, int64_t lines, int64_t row_tiles);

}  // namespace fathom::cuda
