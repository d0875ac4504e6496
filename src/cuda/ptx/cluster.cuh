#pragma once
// Blocks of a cluster: their barrier and the shared memory of one another.
//
//   cluster_sync();                                        // what was written before is visible to all
//   float4 v = load_remote4(shared_address(values), rank);
//   cluster_sync();                                        // nobody reads this block's shared memory any more
//
// Every thread of every block of the cluster takes part in its barrier.

#include <cstdint>

namespace fathom::cuda {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// Orders no memory, where cluster_arrive() is a fence of the whole GPU, which waits for all that a thread has asked
// for. It is for blocks that have begun, have what they read, or have initialised barriers (barriers_are_ready()).
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
// Where the lanes of a warp may have parted.
__device__ __forceinline__ void cluster_sync_parted() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// The same place in the shared memory of another block, as a shared-memory address.
__device__ __forceinline__ uint32_t remote_address(uint32_t shared, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}
__device__ __forceinline__ float load_remote(uint32_t shared, uint32_t rank) {
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];"
               : "=f"(v)
               : "r"(remote_address(shared, rank))
               : "memory");
  return v;
}
__device__ __forceinline__ void store_remote(uint32_t shared, uint32_t rank, float v) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote_address(shared, rank)), "f"(v)
               : "memory");
}
// Aligned to 8 bytes.
__device__ __forceinline__ float2 load_remote2(uint32_t shared, uint32_t rank) {
  float2 v;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(v.x), "=f"(v.y)
               : "r"(remote_address(shared, rank))
               : "memory");
  return v;
}
// Aligned to 16 bytes.
__device__ __forceinline__ float4 load_remote4(uint32_t shared, uint32_t rank) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(remote_address(shared, rank))
               : "memory");
  return v;
}

// The address of a block's own variable in another block.
template <class T>
__device__ __forceinline__ T* in_block(T* mine, uint32_t rank) {
  uint64_t theirs;
  asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(reinterpret_cast<uint64_t>(mine)), "r"(rank));
  return reinterpret_cast<T*>(theirs);
}

}  // namespace fathom::cuda
