#pragma once
// Boxes of weights that a step reads once: the L2 cache gives them up first, so that what the next kernels want again,
// their instructions too, stays in it.
//
//   barrier_expect(full, bytes);
//   load_weight_tile(&map, tile, full, x, y);      // as load_tile() does (ptx/tensor_copy.cuh)

#include <cuda.h>

#include <cstdint>

namespace fathom::cuda {

// What createpolicy.fractional.L2::evict_first gives for all of the bytes.
inline constexpr uint64_t kEvictFirst = 0x12f0000000000000;

__device__ __forceinline__ void load_weight_tile(const CUtensorMap* map, uint32_t tile,
                                                 uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(tile),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(x), "r"(y), "l"(kEvictFirst)
      : "memory");
}
__device__ __forceinline__ void load_weight_tile(const CUtensorMap* map, uint32_t tile,
                                                 uint32_t barrier, const int (&at)[5]) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(tile),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]),
      "r"(at[3]), "r"(at[4]), "l"(kEvictFirst)
      : "memory");
}

}  // namespace fathom::cuda
