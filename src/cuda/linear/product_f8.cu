#include "cuda/linear/wide_product.cuh"

namespace fathom::cuda {

void run_product_f8(const ProductParams& params, ops::Stream& stream) {
  run_product_of<F8E4M3>(params, stream);
}

}  // namespace fathom::cuda
