#pragma once
// The best rows of a query token among those that the blocks of a cluster have, by whole numbers that rise with the
// rank of a score: the number of the last one kept, byte by byte, and where each block's rows go.
//
//   const Choosers choosers{shared, blocks};     // blocks: of the cluster, from its first one on
//   choosers.begin();                            // then a barrier of the cluster: all may send
//   count_where(is_candidate, &shared.counts[digit][byte]);
//   const FoundByte found = choosers.find(digit, num_left);      // all threads
//   const uint2 before = choosers.kept_before(above, equal);
//
// Shared memory of the cluster carries what blocks tell each other; a block waits for the bytes. shared.counts were 0.
// Internal to cuda/indexer/.

#include <cstdint>

#include "cuda/device/reduce.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/send.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

inline constexpr int kChoiceThreads = 512, kChoiceWarps = kChoiceThreads / 32;
inline constexpr int kDigits = 4, kBins = 256;
inline constexpr int kMostChoosers = 16;

// A byte's value, how many rows have it, and how many of these are kept.
struct FoundByte {
  uint32_t value, count, left;
};

struct ChoiceShared {
  // Rows of this block by each byte, and those of each block, every other byte in the same place.
  alignas(16) uint32_t counts[kDigits][kBins], inbox[2][kMostChoosers][kBins];
  uint32_t kept[kMostChoosers][2];
  uint64_t has_counts[2], has_kept;
  FoundByte found;
  uint32_t warp_sums[kBins / 32];

  // By one thread.
  __device__ __forceinline__ void init_barriers() {
    for (uint64_t& barrier : has_counts) barrier_init(shared_address(&barrier), 1);
    barrier_init(shared_address(&has_kept), 1);
    barriers_are_ready();
  }
};

// Without a branch, at which lanes would part.
__device__ __forceinline__ void count_where(bool holds, uint32_t* bin) {
  asm volatile(
      "{\n.reg .pred holds;\nsetp.ne.u32 holds, %0, 0;\n@holds red.shared.add.u32 [%1], 1;\n}" ::
          "r"(static_cast<uint32_t>(holds)),
      "r"(shared_address(bin))
      : "memory");
}

struct Choosers {
  ChoiceShared& shared;
  uint32_t blocks;

  __device__ __forceinline__ void begin() const {
    if (threadIdx.x != 0) return;
    for (uint64_t& barrier : shared.has_counts) expect(barrier, kBins);
    expect(shared.has_kept, 2);
  }

  // The byte of the left-th best row of all blocks. Every thread of theirs calls it.
  __device__ __forceinline__ FoundByte find(int digit, uint32_t left) const {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();  // all threads have counted
    if (blocks > 1) send_counts(digit);
    uint32_t mine = 0,
             from_here = 0;  // rows with the thread's value, and with those above it in the warp
    if (threadIdx.x < kBins) {
      mine = blocks > 1 ? count_of_all(digit) : shared.counts[digit][threadIdx.x];
      from_here = sum_from_lane(mine, lane);
      if (lane == 0) shared.warp_sums[warp] = from_here;
    }
    __syncthreads();
    if (threadIdx.x < kBins) {
      const bool is_above = lane > warp && lane < kBins / 32;
      const uint32_t above =
          from_here - mine + __reduce_add_sync(0xffffffffu, is_above ? shared.warp_sums[lane] : 0);
      if (above < left && left <= above + mine) shared.found = {threadIdx.x, mine, left - above};
    }
    __syncthreads();
    return shared.found;
  }

  // The rows above the last one kept, and those equal to it, of the blocks before this one, which has these.
  __device__ __forceinline__ uint2 kept_before(uint32_t above, uint32_t equal) const {
    if (blocks == 1) return {};
    const uint32_t lane = threadIdx.x % 32, barrier = shared_address(&shared.has_kept);
    if (threadIdx.x < blocks)
      send_two(shared_address(&shared.kept[cluster_rank()][0]), barrier, threadIdx.x,
               {__uint_as_float(above), __uint_as_float(equal)});
    barrier_wait(barrier, 0);
    const bool is_before = lane < cluster_rank();
    return {__reduce_add_sync(0xffffffffu, is_before ? shared.kept[lane][0] : 0),
            __reduce_add_sync(0xffffffffu, is_before ? shared.kept[lane][1] : 0)};
  }

 private:
  __device__ __forceinline__ void send_counts(int digit) const {
    constexpr uint32_t kVectors = kBins / 4;
    const int half = digit % 2;
    const uint32_t barrier = shared_address(&shared.has_counts[half]);
    for (uint32_t i = threadIdx.x; i < blocks * kVectors; i += kChoiceThreads) {
      const uint32_t to = i / kVectors, at = i % kVectors * 4;
      send_four(shared_address(&shared.inbox[half][cluster_rank()][at]), barrier, to,
                *reinterpret_cast<const uint4*>(&shared.counts[digit][at]));
    }
  }
  // Of the thread's value.
  __device__ __forceinline__ uint32_t count_of_all(int digit) const {
    const int half = digit % 2;
    barrier_wait(shared_address(&shared.has_counts[half]), digit / 2);
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t from = 0; from < kMostChoosers; ++from)
      if (from < blocks) sum += shared.inbox[half][from][threadIdx.x];
    if (threadIdx.x == 0 && digit + 2 < kDigits) expect(shared.has_counts[half], kBins);
    return sum;
  }
  // So many words of each block.
  __device__ __forceinline__ void expect(uint64_t& barrier, uint32_t words) const {
    barrier_expect(shared_address(&barrier), blocks * words * 4);
  }
};

}  // namespace fathom::cuda
