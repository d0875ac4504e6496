#include "cuda/experts/down_and_combine.cuh"
#include "cuda/experts/wide_experts.cuh"

namespace fathom::cuda {

template <>
void run_down_of<Bf16>(const ExpertProductParams& params, ops::Stream& stream) {
  run_groups<Bf16, false>(params, stream);
}

template <>
void run_down_and_combine_of<Bf16>(const ExpertProductParams& params,
                                   const CombineParams& combining, ops::Stream& stream) {
  launch_down_and_combine<Bf16>(params, combining, stream);
}

}  // namespace fathom::cuda
