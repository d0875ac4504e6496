#include "cuda/gemm/product_launch.cuh"

namespace fathom::cuda {

void run_tiled_u4(const ProductArgs& args, ops::Stream& stream) {
  if (args.is_gated) return start_tiled<Tiling<tensor::U4x2, 128, 256, true>>(args, stream);
  start_tiled<Tiling<tensor::U4x2, 128, 256>>(args, stream);
}

}  // namespace fathom::cuda
