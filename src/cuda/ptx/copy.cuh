#pragma once
// Copies of bytes from global to shared memory without registers on the way, and loads that leave no traces in caches.
//
//   copy_async_16(shared, global, valid);  commit_copies();  wait_copies<0>();      // then a barrier of the block
//   barrier_expect(full, bytes);  copy_row(shared, global, bytes, full);            // by the copy engine
//
// Places in shared memory are shared-memory addresses (ptx/shared.cuh), barriers those of ptx/barrier.cuh.

#include <cstdint>

namespace fathom::cuda {

// 4 bytes to shared memory without a register on the way.
__device__ __forceinline__ void copy_async_4(uint32_t shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}

// Asynchronous copies of fewer than 16 bytes.
template <int kBytes>
__device__ __forceinline__ void copy_async_small(uint32_t shared, const void* global, bool valid) {
  const int bytes = valid ? kBytes : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global),
               "n"(kBytes), "r"(bytes)
               : "memory");
}

// 16 bytes from global to shared memory, asynchronously; zeros where not valid. Not for the L1 cache.
__device__ __forceinline__ void copy_async_16(uint32_t shared, const void* global, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}

// The same of a row that is read from end to end: the L2 cache gets 256 bytes at once.
__device__ __forceinline__ void copy_async_16_of_row(uint32_t shared, const void* global,
                                                     bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until at most this many of the groups committed last are under way.
template <int kGroups>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Both places and the size are multiples of 16 bytes.
__device__ __forceinline__ void copy_row(uint32_t shared, const void* global, uint32_t bytes,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

// 16 bytes that are read once: weights. They may be read before wait_for_previous().
__device__ __forceinline__ uint4 load_streamed(const void* global) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global));
  return v;
}

}  // namespace fathom::cuda
