#pragma once
// Blocks of a cluster: their ranks, barrier and shared memory.
//
//   cluster_barrier();  float theirs = load_remote(&shared_value, rank);  cluster_barrier();
//
// Every thread of every block of the cluster calls cluster_barrier().

#include <cstdint>

#include "cuda/device/mma.cuh"

namespace fathom::cuda {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Orders shared memory written before it.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// The float at the same place of another block's shared memory.
__device__ __forceinline__ float load_remote(const float* local, uint32_t rank) {
  uint32_t remote;
  float value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(remote)
               : "r"(shared_address(local)), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(remote) : "memory");
  return value;
}

}  // namespace fathom::cuda
