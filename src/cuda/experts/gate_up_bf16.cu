#include "cuda/experts/expert_product.cuh"

namespace fathom::cuda {

template <>
void run_gate_up_of<Bf16>(const ExpertProductParams& params, int group_tokens,
                          ops::Stream& stream) {
  launch_for_tokens<Bf16, true>(params, group_tokens, stream);
}

}  // namespace fathom::cuda
