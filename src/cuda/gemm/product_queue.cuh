#pragma once
// The order in which the roles of the kernel of product.h take the block's tiles.
//
//   for_each_tile<C>(p, shared, [&](const Tile& tile, Queue<C>& queue) { ... });
//
// Internal to product_kernel.cuh.

#include "cuda/gemm/product_tile.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/send.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

// Tiles of groups that clusters get as they become free: the first of a cluster is known, the others come by a counter
// in memory, to all roles of both blocks by way of their shared memory.
template <class C>
class Queue {
 public:
  __device__ explicit Queue(uint32_t shared) : base_(shared + C::kQueueAt) {}
  // One thread, before init_barriers().
  __device__ void init() const {
    for (int i = 0; i < kQueueSlots; ++i) {
      barrier_init(full(i), 1);
      barrier_expect(full(i), sizeof(GroupTile));
    }
  }
  // One thread of the cluster, in each step of a tile that it feeds, asks for the tile behind that one a few steps
  // ahead of the end and looks up the answer some steps later: whoever has to wait for it holds up both blocks.
  __device__ __forceinline__ void feed(const TiledParams& p, int k) {
    constexpr int kAskAhead = 7, kLookUpAhead = 4;
    if (p.taken == nullptr) return;
    if (k == max(p.num_steps - kAskAhead, 0)) asked_ = atomicAdd(p.taken, 1);
    if (k == max(p.num_steps - kLookUpAhead, 0)) hand_out(p);
  }
  // Whoever is_first makes the place ready for another tile.
  __device__ __forceinline__ GroupTile next(bool is_first) {
    barrier_wait(full(slot_), phase_);
    const uint4 tile = load_shared_16(place());
    if (is_first) barrier_expect(full(slot_), sizeof(GroupTile));
    if (++slot_ == kQueueSlots) slot_ = 0, phase_ ^= 1;
    return reinterpret_cast<const GroupTile&>(tile);
  }

 private:
  // A group below 0: there is no more.
  __device__ __forceinline__ void hand_out(const TiledParams& p) const {
    const int index = static_cast<int>(gridDim.x) / kClusterBlocks + asked_;
    GroupTile tile{.group = -1};
    if (index < num_pairs<C>(p)) tile = group_tile<C>(p, index);
    for (uint32_t block = 0; block < kClusterBlocks; ++block)
      send_four(place(), full(slot_), block, reinterpret_cast<const uint4&>(tile));
  }
  __device__ uint32_t place() const { return base_ + slot_ * 16; }
  __device__ uint32_t full(int slot) const { return base_ + kQueueSlots * 16 + slot * 8; }

  uint32_t base_;
  int slot_ = 0, asked_ = 0;
  uint32_t phase_ = 0;
};

// The block's tiles, in the order in which every role takes them. Of tiles in turn the next one is looked up before a
// tile is taken.
template <class C, class Take>
__device__ __forceinline__ void for_each_tile(const TiledParams& p, uint32_t shared,
                                              const Take& take) {
  const int rank = static_cast<int>(cluster_rank()), pairs = num_pairs<C>(p);
  const int step = static_cast<int>(gridDim.x) / kClusterBlocks;
  int index = static_cast<int>(blockIdx.x) / kClusterBlocks;
  if (index >= pairs) return;
  Queue<C> queue(shared);
  const bool has_queue = C::kHasQueue && p.taken != nullptr;
  Tile next = tile_at<C>(p, index, rank);
  while (true) {
    const Tile tile = next;
    const bool has_lower = C::kHasNarrow && tile.is_upper;
    if (has_lower) {
      next = lower_of<C>(tile);
    } else if (!has_queue) {
      index += step;
      next = tile_at<C>(p, min(index, pairs - 1), rank);
    }
    take(tile, queue);
    if (has_queue) {
      const GroupTile handed = queue.next(threadIdx.x == 0);
      if (handed.group < 0) return;
      next = block_tile<C>(p, handed, rank);
    } else if (!has_lower && index >= pairs) {
      return;
    }
  }
}

}  // namespace fathom::cuda
