#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <>
void run_gate_up_of<tensor::I4x2>(const ExpertProductParams& params, ops::Stream& stream) {
  run_groups<tensor::I4x2, true>(params, stream);
}

}  // namespace fathom::cuda
