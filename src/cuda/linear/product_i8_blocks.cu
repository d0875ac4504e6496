#include "cuda/linear/wide_product.cuh"

namespace fathom::cuda {

void run_product_i8_blocks(const ProductParams& params, ops::Stream& stream) {
  run_product_of<I8Blocks>(params, stream);
}

}  // namespace fathom::cuda
