#pragma once
// Stages in shared memory that the copy engine fills and warps read, beside what gemm/ptx.cuh has of barriers.
//
//   barrier_init(full, 1);  barrier_init(empty, readers);  barriers_are_ready();
//   barrier_expect(full, bytes);  copy_row(to, from, row_bytes, full);       // who copies
//   barrier_wait(full, phase);  ...  barrier_arrive(empty);                  // who reads
//
// Places and barriers are shared-memory addresses. Internal to cuda/attention/.

#include "cuda/gemm/ptx.cuh"

namespace fathom::cuda {

// Both places and the size are multiples of 16 bytes.
__device__ __forceinline__ void copy_row(uint32_t shared, const void* global, uint32_t bytes,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace fathom::cuda
