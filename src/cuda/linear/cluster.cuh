#pragma once
// Blocks of a cluster: their barrier and shared memory (cluster_rank(): gemm/ptx.cuh).
//
//   cluster_barrier();  float theirs = load_remote(&shared_value, rank);  cluster_barrier();
//
// Every thread of every block of the cluster calls cluster_barrier().

#include <cstdint>

#include "cuda/gemm/ptx.cuh"

namespace fathom::cuda {

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
// Four of them, aligned to 16 bytes.
__device__ __forceinline__ float4 load_remote_4(const float* local, uint32_t rank) {
  uint32_t remote;
  float4 v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(remote)
               : "r"(shared_address(local)), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(remote)
               : "memory");
  return v;
}

}  // namespace fathom::cuda
