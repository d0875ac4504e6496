#pragma once
// Rows asked into the L2 cache, for copies that come later.
//
//   prefetch_row(row, 1152);      // one thread; the place and the size are multiples of 16 bytes

#include <cstdint>

namespace fathom::cuda {

__device__ __forceinline__ void prefetch_row(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

}  // namespace fathom::cuda
