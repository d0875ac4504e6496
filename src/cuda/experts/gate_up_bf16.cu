#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <>
void run_gate_up_of<Bf16>(const ExpertProductParams& params, ops::Stream& stream) {
  if (!params.is_aligned) return launch_expert_product<Bf16, false, true>(params, stream);
  if (params.lists.group_tokens == kNarrowGroup)
    return launch_expert_product<Bf16, true, true>(params, stream);
  launch_wide_experts<Bf16, true>(params, stream);
}

}  // namespace fathom::cuda
