#include "cuda/experts/expert_product.cuh"

namespace fathom::cuda {

template <>
void run_gate_up_of<F8E4M3>(const ExpertProductParams& params, int group_tokens,
                            ops::Stream& stream) {
  launch_for_tokens<F8E4M3, true>(params, group_tokens, stream);
}

}  // namespace fathom::cuda
