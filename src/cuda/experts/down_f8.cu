#include "cuda/experts/down_and_combine.cuh"

namespace fathom::cuda {

template <>
void run_down_of<F8E4M3>(const ExpertProductParams& params, int group_tokens, ops::Stream& stream) {
  launch_for_tokens<F8E4M3, false>(params, group_tokens, stream);
}

template <>
void run_down_and_combine_of<F8E4M3>(const ExpertProductParams& params,
                                     const CombineParams& combining, ops::Stream& stream) {
  launch_down_and_combine<F8E4M3>(params, combining, stream);
}

}  // namespace fathom::cuda
