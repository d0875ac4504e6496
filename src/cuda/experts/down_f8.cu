#include "cuda/experts/down_and_combine.cuh"
#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <>
void run_down_of<F8E4M3>(const ExpertProductParams& params, ops::Stream& stream) {
  run_groups<F8E4M3, false>(params, stream);
}

template <>
void run_down_and_combine_of<F8E4M3>(const ExpertProductParams& params,
                                     const CombineParams& combining, ops::Stream& stream) {
  launch_down_and_combine<F8E4M3>(params, combining, stream);
}

}  // namespace fathom::cuda
