#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <>
void run_gate_up_of<Bf16>(const ExpertProductParams& params, ops::Stream& stream) {
  run_groups<Bf16, true>(params, stream);
}

}  // namespace fathom::cuda
