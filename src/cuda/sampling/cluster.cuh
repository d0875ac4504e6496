#pragma once
// A cluster of blocks that works on one row: sums and maxima over all of its warps, known to every thread.
//
//   __shared__ ClusterShared shared;
//   Cluster cluster(shared);                          // blocks of the cluster along x
//   ... wait_for_previous() ...
//   cluster.begin();                                  // all blocks run: their shared memory may be written
//   cluster.share({a, b, c});                         // values of this warp, the same in its lanes
//   uint64_t total = cluster.sum(0);                  // over all warps; slots stay until the next but one share()
//   cluster.end();                                    // before a block leaves
//
// A warp sends its values straight to all blocks, so one barrier of the cluster is both levels of a reduction. Every
// thread of the cluster makes the same calls. Sums of whole numbers and maxima alone: any order is exact.

#include <cstdint>

#include "cuda/ptx/cluster.cuh"

namespace fathom::cuda {

inline constexpr int kSampleThreads = 512, kSampleWarps = kSampleThreads / 32;
inline constexpr int kMaxRanks = 16;  // blocks of a cluster
inline constexpr int kSharedWords = 3;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

struct ClusterShared {
  uint64_t slots[2][kSharedWords][kMaxRanks * kSampleWarps];
  uint64_t warp_sums[8][kSampleWarps];  // ordered_pick's: of a warp's part of each vector row
  int32_t picked[2];                    // of one pick, and of the next
};

// REQUIRES: the sum fits 2^57, of numbers below 2^52 each.
__device__ __forceinline__ uint64_t warp_sum_whole(uint64_t v) {
  // Two halves of 27 and up to 27 bits: 32 of either fit 32 bits.
  constexpr uint32_t kLow = (1u << 27) - 1;
  const uint32_t low = __reduce_add_sync(kAllLanes, static_cast<uint32_t>(v) & kLow);
  const uint32_t high = __reduce_add_sync(kAllLanes, static_cast<uint32_t>(v >> 27));
  return (uint64_t{high} << 27) + low;
}
__device__ __forceinline__ uint64_t warp_max_whole(uint64_t v) {
  const auto high = static_cast<uint32_t>(v >> 32);
  const uint32_t most = __reduce_max_sync(kAllLanes, high);
  const uint32_t low = __reduce_max_sync(kAllLanes, high == most ? static_cast<uint32_t>(v) : 0u);
  return uint64_t{most} << 32 | low;
}
__device__ __forceinline__ uint64_t warp_running_sum(uint64_t v) {
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const uint64_t before = __shfl_up_sync(kAllLanes, v, lanes);
    if (static_cast<int>(threadIdx.x % 32) >= lanes) v += before;
  }
  return v;
}

class Cluster {
 public:
  __device__ __forceinline__ explicit Cluster(ClusterShared& shared)
      : shared_(shared),
        rank_(cluster_rank()),
        num_slots_(static_cast<int>(cluster_size()) * kSampleWarps) {
    __syncwarp();
    cluster_arrive_relaxed();  // this block has begun
  }
  __device__ __forceinline__ void begin() { cluster_wait(); }
  __device__ __forceinline__ void barrier() {
    arrive();
    cluster_wait();
  }
  __device__ __forceinline__ uint32_t rank() const { return rank_; }
  __device__ __forceinline__ uint32_t size() const { return cluster_size(); }

  template <int kWords>
  __device__ __forceinline__ void share(const uint64_t (&words)[kWords]) {
    static_assert(kWords <= kSharedWords);
    // Two sets of slots: who is a barrier ahead writes the other one.
    set_ ^= 1;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane < static_cast<int>(cluster_size())) {
#pragma unroll
      for (int word = 0; word < kWords; ++word)
        *in_block(&shared_.slots[set_][word][rank_ * kSampleWarps + warp], lane) = words[word];
    }
    barrier();
  }
  // What the last share() brought: each warp's value, by block, then warp.
  __device__ __forceinline__ uint64_t slot(int word, int i) const {
    return shared_.slots[set_][word][i];
  }
  __device__ __forceinline__ int num_slots() const { return num_slots_; }
  __device__ __forceinline__ uint64_t sum(int word) const {
    uint64_t total = 0;
    for (int i = threadIdx.x % 32; i < num_slots_; i += 32) total += slot(word, i);
    return warp_sum_whole(total);
  }
  __device__ __forceinline__ uint64_t max(int word) const {
    uint64_t most = 0;
    for (int i = threadIdx.x % 32; i < num_slots_; i += 32) most = ::max(most, slot(word, i));
    return warp_max_whole(most);
  }
  // Adds up the values of one block's warps.
  __device__ __forceinline__ uint64_t sum_of_block(int word, int rank) const {
    uint64_t total = 0;
#pragma unroll
    for (int warp = 0; warp < kSampleWarps; ++warp) total += slot(word, rank * kSampleWarps + warp);
    return total;
  }

  __device__ __forceinline__ ClusterShared& shared() { return shared_; }

 private:
  static __device__ __forceinline__ void arrive() {
    __syncwarp();  // the barrier wants whole warps
    cluster_arrive();
  }

  ClusterShared& shared_;
  const uint32_t rank_;
  const int num_slots_;
  int set_ = 0;
};

}  // namespace fathom::cuda
