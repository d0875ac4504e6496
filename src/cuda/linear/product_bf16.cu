#include "cuda/linear/wide_product.cuh"

namespace fathom::cuda {

void run_product_bf16(const ProductParams& params, ops::Stream& stream) {
  run_product_of<Bf16>(params, stream);
}

}  // namespace fathom::cuda
