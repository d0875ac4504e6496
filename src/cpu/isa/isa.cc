#include "cpu/isa/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <string>

#include "base/check.h"
#include "base/startup_error.h"

namespace fathom::cpu {

namespace {

constexpr Isa kBestFirst[] = {Isa::kAmx, Isa::kAvx512Bf16, Isa::kAvx512, Isa::kAvx2,
                              Isa::kPortable};

#if defined(__x86_64__)
// clang 14 does not know the name "f16c" for its builtin. Bit 29 of ecx, leaf 1.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1) != 0;
}
#endif

#if defined(__x86_64__)
// Bits 22 (AMX-BF16), 24 (AMX-TILE) and 25 (AMX-INT8) of edx, leaf 7.
bool has_amx() {
  constexpr unsigned kAll = 1u << 22 | 1u << 24 | 1u << 25;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAll) == kAll;
}

// Linux saves the tile registers of a process that has asked for it; all its threads may use them then.
bool may_use_tiles() {
  constexpr int kRequestState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool may = syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
  return may;
}
#endif

Isa choose_isa() {
  const char* wanted = std::getenv("FATHOM_CPU_ISA");
  for (const Isa isa : kBestFirst) {
    if (wanted == nullptr ? isa_supported(isa) : isa_name(isa) == wanted) {
      if (!isa_supported(isa))
        throw StartupError("FATHOM_CPU_ISA is " + std::string(wanted) +
                           ", which this processor does not support");
      return isa;
    }
  }
  throw StartupError("FATHOM_CPU_ISA is \"" + std::string(wanted) +
                     "\"; it must be portable, avx2, avx512, avx512_bf16 or amx");
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAmx:
      return "amx";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kPortable:
      break;
  }
  return "portable";
}

bool isa_supported(Isa isa) {
#if defined(__x86_64__)
  // The builtin also asks the operating system whether it saves the wide registers.
  if (isa == Isa::kAvx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (isa == Isa::kAvx512)
    return isa_supported(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  if (isa == Isa::kAvx512Bf16)
    return isa_supported(Isa::kAvx512) && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
  if (isa == Isa::kAmx) return isa_supported(Isa::kAvx512Bf16) && has_amx() && may_use_tiles();
#endif
  return isa == Isa::kPortable;
}

Isa effective_isa() {
  static const Isa isa = choose_isa();
  return isa;
}

const KernelTable& kernels_for(Isa isa) {
  FATHOM_CHECK(isa_supported(isa), "instruction set " << isa_name(isa) << " is not supported");
#if defined(__x86_64__)
  if (isa == Isa::kAmx) return amx_kernels();
  if (isa == Isa::kAvx512Bf16) return avx512_bf16_kernels();
  if (isa == Isa::kAvx512) return avx512_kernels();
  if (isa == Isa::kAvx2) return avx2_kernels();
#endif
  return portable_kernels();
}

}  // namespace fathom::cpu
