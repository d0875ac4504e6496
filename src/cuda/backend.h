#pragma once
// The CUDA backend: NVIDIA Hopper GPUs (compute capability 9.0), activations in bf16.
//
//   const cuda::Presence gpu = cuda::find_gpu();
//   if (gpu.usable) backend = &cuda::backend();         else say(gpu.why_not);
//
// Two tables over the same device. backend() keeps invariance among the rows of calls of one class of sizes
// (docs/contracts/ops.md, section 4), batch_invariant_backend() among all rows, which costs batches and prompts speed.
// Thread-safe: streams share nothing.

#include <string>

#include "ops/backend.h"

namespace fathom::cuda {

struct Presence {
  bool usable = false;
  std::string why_not;  // one sentence, when not usable
};

// Whether this program was built with the CUDA toolkit.
bool is_built();
Presence find_gpu();

// REQUIRES: find_gpu().usable.
const ops::Backend& backend();
const ops::Backend& batch_invariant_backend();

}  // namespace fathom::cuda
