#include "cuda/linear/wide_product.cuh"

namespace fathom::cuda {

void run_product_f8(const ProductParams& params, ops::Stream& stream) {
  if (!rows_are_aligned<F8E4M3>(params)) return launch_product<F8E4M3, 1, 1, false>(params, stream);
  if (params.tokens <= 8) return launch_product<F8E4M3, 1, 1, true>(params, stream);
  if (params.tokens <= 16) return launch_product<F8E4M3, 1, 2, true>(params, stream);
  if (params.tokens <= 32 || !wide_is_better<F8E4M3>(params))
    return launch_product<F8E4M3, 2, 4, true>(params, stream);
  launch_wide_product<F8E4M3>(params, stream);
}

}  // namespace fathom::cuda
