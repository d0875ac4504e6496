#include "cuda/experts/down_and_combine.cuh"
#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <>
void run_down_of<F8E4M3>(const ExpertProductParams& params, ops::Stream& stream) {
  if (!params.is_aligned) return launch_expert_product<F8E4M3, false, false>(params, stream);
  if (params.lists.group_tokens == kNarrowGroup)
    return launch_expert_product<F8E4M3, true, false>(params, stream);
  launch_wide_experts<F8E4M3, false>(params, stream);
}

template <>
void run_down_and_combine_of<F8E4M3>(const ExpertProductParams& params,
                                     const CombineParams& combining, ops::Stream& stream) {
  launch_down_and_combine<F8E4M3>(params, combining, stream);
}

}  // namespace fathom::cuda
