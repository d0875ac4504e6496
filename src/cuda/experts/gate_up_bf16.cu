#include "cuda/experts/gate_up_pairs.cuh"

namespace fathom::cuda {

template <>
void run_gate_up_of<Bf16>(const ExpertProductParams& params, ops::Stream& stream) {
  run_pairs_or_groups<Bf16>(params, stream);
}

}  // namespace fathom::cuda
