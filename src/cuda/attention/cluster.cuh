#pragma once
// Blocks of a cluster: their barrier and the shared memory of one another.
//
//   cluster_arrive(); cluster_wait();                      // what was written before is visible to all
//   float4 v = load_cluster(shared_address(values), rank);
//
// Internal to cuda/attention/.

#include <cstdint>

namespace fathom::cuda {

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same place in the shared memory of another block.
__device__ __forceinline__ uint32_t cluster_address(uint32_t shared, int rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}
__device__ __forceinline__ float4 load_cluster4(uint32_t shared, int rank) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(cluster_address(shared, rank))
               : "memory");
  return v;
}
__device__ __forceinline__ float2 load_cluster2(uint32_t shared, int rank) {
  float2 v;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(v.x), "=f"(v.y)
               : "r"(cluster_address(shared, rank))
               : "memory");
  return v;
}

}  // namespace fathom::cuda
