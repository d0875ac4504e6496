#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <>
void run_down_of<I8Blocks>(const ExpertProductParams& params, ops::Stream& stream) {
  run_groups<I8Blocks, false>(params, stream);
}

}  // namespace fathom::cuda
