#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <>
void run_gate_up_of<F8E4M3>(const ExpertProductParams& params, ops::Stream& stream) {
  if (!params.is_aligned) return launch_expert_product<F8E4M3, false, true>(params, stream);
  if (params.lists.group_tokens == kNarrowGroup)
    return launch_expert_product<F8E4M3, true, true>(params, stream);
  launch_wide_experts<F8E4M3, true>(params, stream);
}

}  // namespace fathom::cuda
