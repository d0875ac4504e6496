#include "cuda/experts/expert_product.cuh"

// Weights that tests have, not models: one form for all.

namespace fathom::cuda {

template <>
void run_gate_up_of<float>(const ExpertProductParams& params, ops::Stream& stream) {
  launch_expert_product<float, false, true>(params, stream);
}

template <>
void run_down_of<float>(const ExpertProductParams& params, ops::Stream& stream) {
  launch_expert_product<float, false, false>(params, stream);
}

}  // namespace fathom::cuda
