#include "cuda/linear/batch_product.cuh"

namespace fathom::cuda {

void run_batch_i8_blocks(const BatchParams& params, unsigned blocks, ops::Stream& stream) {
  launch_batch_product<I8Blocks>(params, blocks, stream);
}

}  // namespace fathom::cuda
