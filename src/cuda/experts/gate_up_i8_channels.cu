#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <>
void run_gate_up_of<I8Channels>(const ExpertProductParams& params, ops::Stream& stream) {
  run_groups<I8Channels, true>(params, stream);
}

}  // namespace fathom::cuda
