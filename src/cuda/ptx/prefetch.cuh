#pragma once
// Memory asked into the L2 cache, for reads that come later.
//
//   prefetch_row(row, 1152);      // one thread; the place and the size are multiples of 16 bytes
//   prefetch_line(value);         // the 128 bytes around it

#include <cstdint>

namespace fathom::cuda {

__device__ __forceinline__ void prefetch_row(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void prefetch_line(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

}  // namespace fathom::cuda
