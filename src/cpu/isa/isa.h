#pragma once
// Which instruction set the fast path uses. Chosen once, at the first use: the best that the processor
// and the operating system support, or what FATHOM_CPU_ISA names.
//
//   FATHOM_CPU_ISA=avx2 fathom generate ...
//
// Thread-safe.

#include <string_view>

#include "cpu/isa/kernels.h"

namespace fathom::cpu {

enum class Isa { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx };

std::string_view isa_name(
    Isa isa);  // "portable", "avx2", "avx512", "avx512_bf16", "amx": the values of FATHOM_CPU_ISA
// Whether this machine can run it.
bool isa_supported(Isa isa);
// The instruction set in effect. Throws StartupError when FATHOM_CPU_ISA names an unknown or unsupported
// one.
Isa effective_isa();
// REQUIRES: isa_supported(isa).
const KernelTable& kernels_for(Isa isa);

}  // namespace fathom::cpu
