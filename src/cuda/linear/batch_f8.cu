#include "cuda/linear/batch_product.cuh"

namespace fathom::cuda {

void run_batch_f8(const BatchParams& params, unsigned blocks, ops::Stream& stream) {
  launch_batch_product<F8E4M3>(params, blocks, stream);
}

}  // namespace fathom::cuda
