#pragma once
// The CUDA backend: one NVIDIA Hopper GPU (compute capability 9.0), activations in bf16.
//
//   const cuda::Presence gpu = cuda::find_gpu();
//   if (gpu.usable) backend = &cuda::backend();         else say(gpu.why_not);
//
// Two tables over the same device. backend() keeps invariance among the rows of calls of one class of sizes
// (docs/contracts/ops.md, section 4), batch_invariant_backend() among all rows, which costs batches and prompts speed.
// Thread-safe: streams share nothing.

#include <string>

#include "base/result.h"
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

// Who multiplies many rows: whichever a table of measurements says is faster, our kernels alone, or cuBLASLt wherever
// it can. The library is opened at run time; without it all products are ours.
enum class GemmBackend { kAuto, kFathom, kCublasLt };
// For the rest of the process. Called before there are streams.
void set_gemm_backend(GemmBackend backend);
// What cuBLASLt on this machine is, "cuBLASLt 13.1.0", or why it cannot be used. Opens it, which takes 0.6 s.
Result<std::string> find_cublaslt();
// Begins to open it, without waiting: a model that wants it has it sooner.
void open_cublaslt_soon();
// Returns when it is open, if that has begun, and all of its kernels that were asked for so far are loaded: no step
// waits for them. main() ends with it, however it ends: exit() takes the library apart, and a thread that still opened
// it would crash. Streams wait at their end too, for programs without such a main().
void wait_for_cublaslt();

// From here on traces that the program records (base/trace.h) have the GPU's kernels and copies, which costs nothing
// while none is recorded, and profilers of NVIDIA see the host's spans. Called before there are spans.
void join_traces();

}  // namespace fathom::cuda
