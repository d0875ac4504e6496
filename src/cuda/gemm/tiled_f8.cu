#include "cuda/gemm/product_launch.cuh"

namespace fathom::cuda {

void run_tiled_f8(const ProductArgs& args, bool takes_large_tiles, ops::Stream& stream) {
  run_tiled<F8E4M3>(args, takes_large_tiles, stream);
}

}  // namespace fathom::cuda
