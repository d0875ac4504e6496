#pragma once
// Kernels that are compiled at run time for this GPU (jit/kernels.h).
//
//   set_jit({.mode = jit::Mode::kBackground});      // --jit; at the start of the program
//   settle_jit();                                   // before the first request
//
// Thread-safe but for set_jit(), which comes before there are streams.

#include <vector>

#include "jit/kernels.h"

namespace fathom::cuda {

// For the rest of the process: kernels that are wanted from now on.
void set_jit(const jit::Options& options);
jit::Kernels& jit_kernels();
// Returns when the kernels that the disk cache has are there, and with jit::Mode::kWait the others too.
void settle_jit();
// Before the program waits for what runs beside it.
void hasten_jit();
std::vector<jit::KernelState> jit_states();
jit::Progress jit_progress();

}  // namespace fathom::cuda
