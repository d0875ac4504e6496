#pragma once
// Registers: how many a warpgroup has, and values that stay in one.
//
//   give_registers<40>();      // the producer's; then take_registers<232>() in those that multiply

#include <cstdint>

namespace fathom::cuda {

// The same value, which the compiler does not know how to compute again.
__device__ __forceinline__ uint32_t kept(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// All warps of a warpgroup, which starts with what __launch_bounds__ gives it.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace fathom::cuda
