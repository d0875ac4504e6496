#include "cuda/linear/wide_product.cuh"

namespace fathom::cuda {

void run_product_i4(const ProductParams& params, ops::Stream& stream) {
  run_product_of<tensor::I4x2>(params, stream);
}

}  // namespace fathom::cuda
