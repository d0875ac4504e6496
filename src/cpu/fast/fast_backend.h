#pragma once
// The fast CPU backend: vectorised for the processor it runs on, threaded, FP8 and bf16 weights read once
// per call. Same contracts as the reference, and like it batch-invariant: an output row has the same bits
// whatever other rows, threads or chunks there are. Bits differ between instruction sets.
//
//   std::unique_ptr<ops::Stream> stream = cpu::fast_backend().make_stream({.num_threads = 4});
//
// FATHOM_CPU_ISA=portable|avx2|avx512|avx512_bf16|amx overrides the choice of instruction set. Thread-safe: streams
// share nothing.

#include "cpu/isa/isa.h"
#include "ops/backend.h"

namespace fathom::cpu {

// For the effective instruction set. Throws StartupError when FATHOM_CPU_ISA cannot be honoured.
const ops::Backend& fast_backend();
// For a given one. REQUIRES: isa_supported(isa).
const ops::Backend& fast_backend(Isa isa);
// The same with the reference's attention, which one thread computes.
const ops::Backend& generic_attention_backend();

}  // namespace fathom::cpu
