// Absorbed attention of few tokens of 16 heads over bf16 rows that leaves its splits of 128 rows as parts, for the
// kernel behind it to add up (absorbed_parts.cuh): what a step of one sequence or of a few short ones takes. Bound by
// latency: a cluster of two blocks shares a split (absorbed_shared_split.cuh), so that a few thousand rows are read by
// all multiprocessors, and no block waits for others than its own cluster's.
//
// Grid: 2 * tokens x splits, as many as fit on the device at once; a cluster goes on with later splits, which fewer
// than 132 multiprocessors have. Shared memory: 113 KB; two blocks on a multiprocessor.

#include <algorithm>

#include "cuda/attention/absorbed_shared_split.cuh"
#include "cuda/attention/mla_absorbed.h"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda::absorbed {
namespace {

__global__ void __launch_bounds__(kThreads, 2)
    shared_splits_kernel(const __grid_constant__ AbsorbedParams p) {
  extern __shared__ __align__(128) char shared[];
  const SharedSplit block(p, shared);
  const int token = blockIdx.x / kShare;
  if (block.warp == 0) block.init_barriers();
  cluster_arrive_relaxed();
  wait_for_previous();
  let_next_start();  // who adds parts up reads lengths before its own wait
  if (block.warp == 0) block.load_queries(token);
  const QueryGroup group = find_group(p, token, kStreamRows);
  const int end = group.seq < 0 || group.kv_len == 0 ? 0 : group.end();
  int split = blockIdx.y;
  const bool has_split = split * kSplitRows < end;
  if (has_split) block.load_rows(group, split * kSplitRows);
  const uint64_t mask = has_split && group.is_tree ? p.tree_mask[group.first_token] : 0;
  cluster_wait();
  __syncthreads();
  barrier_wait(block.queries_came, 0);
  if (!has_split) return;
#pragma unroll 1
  for (int phase = 0;; phase ^= 1) {
    const int first_row = split * kSplitRows;
    const int num_tiles = (min(kSplitRows, end - first_row) + kTileRows - 1) / kTileRows;
    const int part = token * p.max_chunks * kChunkUnits + split;
    if (threadIdx.x == 0)
      barrier_expect(block.scores_came, num_tiles * kTileRows * kStreamRows * 4);
    uint32_t queries[SharedSplit::kSteps][4];
    block.get_queries(queries);
    wait_copies<0>();
    __syncwarp();
    if (block.warp < num_tiles * 2) block.score(queries);
    __syncthreads();
    barrier_wait(block.scores_came, phase);
    block.weigh(group, mask, first_row, num_tiles, part);
    block.clear_unseen(group, first_row);
    __syncthreads();
    block.add_values(num_tiles, part);
    split += gridDim.y;
    if (split * kSplitRows >= end) return;
    cluster_sync();  // the other has read what it was sent
    block.load_rows(group, split * kSplitRows);
  }
}

}  // namespace

void start_shared_splits(const AbsorbedParams& p, ops::Stream& stream) {
  const int64_t room = std::max(1, 2 * num_multiprocessors() / (p.tokens * kShare));
  const int64_t splits = std::min(int64_t{p.max_chunks} * kChunkUnits, room);
  launch(shared_splits_kernel,
         {.grid = dim3(static_cast<unsigned>(p.tokens * kShare), static_cast<unsigned>(splits)),
          .block = kThreads,
          .shared_bytes = SharedSplitLayout::kBytes,
          .cluster = kShare},
         stream, p);
}

}  // namespace fathom::cuda::absorbed
