#include "cuda/experts/down_and_combine.cuh"

namespace fathom::cuda {

template <>
void run_down_of<Bf16>(const ExpertProductParams& params, int group_tokens, ops::Stream& stream) {
  launch_for_tokens<Bf16, false>(params, group_tokens, stream);
}

template <>
void run_down_and_combine_of<Bf16>(const ExpertProductParams& params,
                                   const CombineParams& combining, ops::Stream& stream) {
  launch_down_and_combine<Bf16>(params, combining, stream);
}

}  // namespace fathom::cuda
