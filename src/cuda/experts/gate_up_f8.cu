#include "cuda/experts/gate_up_pairs.cuh"

namespace fathom::cuda {

template <>
void run_gate_up_of<F8E4M3>(const ExpertProductParams& params, ops::Stream& stream) {
  run_pairs_or_groups<F8E4M3>(params, stream);
}

}  // namespace fathom::cuda
