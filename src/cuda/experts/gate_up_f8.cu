#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <>
void run_gate_up_of<F8E4M3>(const ExpertProductParams& params, ops::Stream& stream) {
  run_groups<F8E4M3, true>(params, stream);
}

}  // namespace fathom::cuda
