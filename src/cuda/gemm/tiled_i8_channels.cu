#include "cuda/gemm/product_launch.cuh"

namespace fathom::cuda {

void run_tiled_i8_channels(const ProductArgs& args, bool takes_large_tiles, ops::Stream& stream) {
  run_tiled<I8Channels>(args, takes_large_tiles, stream);
}

}  // namespace fathom::cuda
