#include "cuda/experts/down_and_combine.cuh"
#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <>
void run_down_of<tensor::I4x2>(const ExpertProductParams& params, ops::Stream& stream) {
  run_groups<tensor::I4x2, false>(params, stream);
}

template <>
void run_down_and_combine_of<tensor::I4x2>(const ExpertProductParams& params,
                                           const CombineParams& combining, ops::Stream& stream) {
  launch_down_and_combine<tensor::I4x2>(params, combining, stream);
}

}  // namespace fathom::cuda
