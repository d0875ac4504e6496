#include "cuda/linear/batch_product.cuh"

namespace fathom::cuda {

void run_batch_u4(const BatchParams& params, unsigned blocks, ops::Stream& stream) {
  launch_batch_product<tensor::U4x2, kPairTokens>(params, blocks, stream);
}

}  // namespace fathom::cuda
