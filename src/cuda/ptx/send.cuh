#pragma once
// Values sent into the shared memory of another block of the cluster, which arrive at one of its barriers: the block
// waits for the bytes (ptx/barrier.cuh) instead of for its peers.
//
//   send_word(shared_address(place), shared_address(barrier), rank, value);      // 4 bytes at the barrier
//
// Both addresses are of this block; they mean the same places in block `rank`. A block must not end before what it is
// sent has come.

#include "cuda/ptx/cluster.cuh"

namespace fathom::cuda {

// To addresses of the other block (remote_address()).
__device__ __forceinline__ void send_word_to(uint32_t remote, uint32_t remote_barrier,
                                             uint32_t value) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(remote),
      "r"(value), "r"(remote_barrier)
      : "memory");
}
__device__ __forceinline__ void send_word(uint32_t to, uint32_t barrier, uint32_t rank,
                                          uint32_t value) {
  send_word_to(remote_address(to, rank), remote_address(barrier, rank), value);
}

// Aligned to 8 bytes.
__device__ __forceinline__ void send_two(uint32_t to, uint32_t barrier, uint32_t rank,
                                         float2 value) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
          remote_address(to, rank)),
      "r"(__float_as_uint(value.x)), "r"(__float_as_uint(value.y)),
      "r"(remote_address(barrier, rank))
      : "memory");
}

// Aligned to 16 bytes.
__device__ __forceinline__ void send_four(uint32_t to, uint32_t barrier, uint32_t rank,
                                          const uint4& value) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(remote_address(to, rank)),
      "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(remote_address(barrier, rank))
      : "memory");
}

}  // namespace fathom::cuda
