#pragma once
// The copy engine on boxes of matrices, which tensor maps describe (gemm/tensor_map.h).
//
//   barrier_expect(full, bytes);
//   load_tile(&map, tile, full, x, y);            // [y, y + rows of the box) x [x, x + columns of the box)
//   barrier_wait(full, phase);
//   ... write a tile ...  show_to_engines();  store_tile(&map, tile, x, y);  wait_stores();
//
// Tiles and barriers are shared-memory addresses.

#include <cuda.h>

#include <cstdint>

namespace fathom::cuda {

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(map)) : "memory");
}

// A box of a matrix to shared memory; what lies outside of the matrix arrives as zeros.
__device__ __forceinline__ void load_tile(const CUtensorMap* map, uint32_t tile, uint32_t barrier,
                                          int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(tile),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

// A box of five dimensions, from these coordinates on.
__device__ __forceinline__ void load_tile(const CUtensorMap* map, uint32_t tile, uint32_t barrier,
                                          const int (&at)[5]) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(tile),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]),
      "r"(at[3]), "r"(at[4])
      : "memory");
}

// The same two of what is read once: the L2 cache gives it up before all else.
inline constexpr uint64_t kEvictFirst = 0x12f0000000000000;  // as createpolicy.fractional makes it
__device__ __forceinline__ void load_tile_once(const CUtensorMap* map, uint32_t tile,
                                               uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(tile),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(x), "r"(y), "l"(kEvictFirst)
      : "memory");
}
__device__ __forceinline__ void load_tile_once(const CUtensorMap* map, uint32_t tile,
                                               uint32_t barrier, const int (&at)[5]) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(tile),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]),
      "r"(at[3]), "r"(at[4]), "l"(kEvictFirst)
      : "memory");
}

// The box of two dimensions to every block of the cluster in `blocks`, a bit each, and to the barrier of each.
__device__ __forceinline__ void load_tile_to(const CUtensorMap* map, uint32_t tile,
                                             uint32_t barrier, int x, int y, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(tile),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}

// The copy engine and the tensor cores may read what this thread, or one it has waited for, wrote to shared memory.
__device__ __forceinline__ void show_to_engines() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A box of shared memory to a matrix, without what lies outside of the matrix; ends a group of this thread's stores.
__device__ __forceinline__ void store_tile(const CUtensorMap* map, uint32_t tile, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\n"
      "cp.async.bulk.commit_group;" ::"l"(reinterpret_cast<uint64_t>(map)),
      "r"(tile), "r"(x), "r"(y)
      : "memory");
}

// Until the shared memory of all but this many of the thread's groups has been read.
template <int kGroups>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}

__device__ __forceinline__ void wait_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace fathom::cuda
