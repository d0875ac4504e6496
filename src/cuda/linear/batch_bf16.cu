#include "cuda/linear/batch_product.cuh"

namespace fathom::cuda {

void run_batch_bf16(const BatchParams& params, unsigned blocks, ops::Stream& stream) {
  launch_batch_product<Bf16>(params, blocks, stream);
}

}  // namespace fathom::cuda
