#pragma once
// What the large products use of Hopper's own instructions, one each: barriers in shared memory, the tensor copy
// engine, registers that move between warpgroups. (The matrix instructions: wgmma.cuh.)
//
//   barrier_init(full, 1);                        // barriers are shared-memory addresses (shared_address())
//   barrier_expect(full, bytes);                  // one arrival, and so many bytes to come
//   load_tile(&map, tile, full, x, y);            // [y, y + rows of the box) x [x, x + columns of the box)
//   barrier_wait(full, phase);                    // phase: 0, 1, 0, ... of the uses of a barrier
//
// A thread of a cluster names shared memory of its own block; peers have the same layout.

#include <cuda.h>

#include <cstdint>

#include "cuda/device/cluster.cuh"
#include "cuda/device/mma.cuh"

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

// 4 bytes to shared memory without a register on the way.
__device__ __forceinline__ void copy_async_4(uint32_t shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
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
// The same to every block of the cluster in `blocks`, a bit each, and to the barrier of each.
__device__ __forceinline__ void load_tile_to(const CUtensorMap* map, uint32_t tile,
                                             uint32_t barrier, int x, int y, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(tile),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}

// Four 8x8 matrices of 16-bit elements, as ldmatrix_x4() reads them: lane l gives the place of row l % 8 of matrix
// l / 8 (16 bytes) and has two neighbours of row l / 4 of each.
__device__ __forceinline__ void store_matrix_x4(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ __forceinline__ float load_shared(uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
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

// The same value, which the compiler does not know how to compute again.
__device__ __forceinline__ uint32_t kept(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// All warps of a warpgroup, which starts with what __launch_bounds__ gives it.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace fathom::cuda
