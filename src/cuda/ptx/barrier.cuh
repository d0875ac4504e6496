#pragma once
// Barriers in shared memory (mbarrier), which threads and the copy engine arrive at, and the numbered ones of a block.
//
//   barrier_init(full, 1);                        // barriers are shared-memory addresses (shared_address())
//   barriers_are_ready();                         // then a barrier of the block or cluster
//   barrier_expect(full, bytes);                  // one arrival, and so many bytes to come
//   barrier_wait(full, phase);                    // phase: 0, 1, 0, ... of the uses of a barrier
//
// A thread of a cluster names shared memory of its own block; peers have the same layout.

#include <cstdint>

namespace fathom::cuda {

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Before any other thread of the cluster or the copy engine uses a barrier; a barrier of the cluster follows.
__device__ __forceinline__ void barriers_are_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// At the barrier of this address in another block of the cluster, or in this one. Orders no writes of global memory:
// a release for the whole cluster is a fence of the GPU, which costs half of a stage's products.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier),
      "r"(block)
      : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\n"
      "bra AGAIN;\n"
      "DONE:\n"
      "}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

// One of the barrier's arrivals, once all copies of this thread so far are there.
__device__ __forceinline__ void barrier_arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Barriers 1 to 15 of a block, of so many threads in all: those that wait and those that do not.
__device__ __forceinline__ void named_barrier_sync(int barrier, int threads) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads) {
  asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace fathom::cuda
