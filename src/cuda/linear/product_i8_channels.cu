#include "cuda/linear/wide_product.cuh"

namespace fathom::cuda {

void run_product_i8_channels(const ProductParams& params, ops::Stream& stream) {
  run_product_of<I8Channels>(params, stream);
}

}  // namespace fathom::cuda
