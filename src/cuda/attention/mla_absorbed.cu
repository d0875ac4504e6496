// Absorbed attention over rows of 512 + 64 values, in bf16 or f8. Memory-bound at 16 heads: a row of 1152 (656)
// bytes is read once for all heads of a sequence's tokens.
//
// A cluster of eight blocks takes 16 or 64 query rows of one sequence (an item) and a chunk of 1024 cache rows at
// an absolute multiple of 1024, block i of it rows [128 i, 128 (i + 1)), 32 at a time: scores by tensor cores, the
// inner dimension in four quarters over the warps; softmax in float32; values by tensor cores, 64 columns a warp.
// Then block i merges columns [64 i, 64 (i + 1)) of all eight, by pairs, pairs of pairs, and those two. A cluster goes
// through its chunks in order; where an item has several clusters, each leaves its chunks' sums in scratch and the one
// that comes last merges them, in the same order, or the kernel behind this one does (absorbed_parts.cuh). So which
// rows are added when is fixed by their numbers, and a query's bits depend on nothing but what it sees. Calls with many
// items of 16 query rows, or whose sequences may be long, go to mla_absorbed_stream.cu, and those of few and short ones
// that leave parts to mla_absorbed_shared_splits.cu, where the same sums are taken in the same order.
//
// Grid: 8 * items x clusters of an item. Shared memory: 103 to 108 KB (16 rows, two blocks on a
// multiprocessor), 213 to 225 KB (64 rows).

#include "cuda/attention/mla_absorbed.h"

#include <algorithm>

#include "cuda/attention/absorbed_merge.cuh"
#include "cuda/attention/absorbed_parts.cuh"
#include "cuda/attention/absorbed_shares.cuh"
#include "cuda/attention/absorbed_split.cuh"
#include "cuda/attention/ops.h"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/device_arena.h"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda::absorbed {
namespace {

// A block's rows of a chunk, from first_row on, if it has some.
template <int kMTiles, bool kIsF8>
__device__ __forceinline__ void attend_part(const AbsorbedParams& p, const QueryGroup& group,
                                            int first_row, bool wants_queries, char* shared) {
  using Layout = BlockLayout<kMTiles, kIsF8>;
  if (first_row < group.end()) {
    begin_split<Layout>(p, group, first_row, wants_queries, shared);
    attend_split<kMTiles, kIsF8>(p, group, first_row, shared);
  } else if (threadIdx.x < Layout::kRows) {
    reinterpret_cast<float2*>(shared + Layout::kStats)[threadIdx.x] = {minus_infinity(), 0.0f};
  }
}

template <int kMTiles, bool kIsF8>
__global__ void __launch_bounds__(kThreads, kMTiles == 1 ? 2 : 1)
    absorbed_kernel(const __grid_constant__ AbsorbedParams p) {
  using Layout = BlockLayout<kMTiles, kIsF8>;
  extern __shared__ __align__(128) char shared[];
  if (!p.leaves_parts) let_next_start();
  wait_for_previous();
  if (p.leaves_parts) let_next_start();  // who adds them up reads lengths before its own wait
  const int item = blockIdx.x / kCluster, slice = blockIdx.x % kCluster;
  const QueryGroup group = find_group(p, item, Layout::kRows);
  if (group.seq < 0) return;
  SliceSum<kMTiles> total;
  total.clear();
  if (group.kv_len == 0) {  // padding
    if (blockIdx.y != 0 || p.leaves_parts) return;
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) total.merged[m].sum = 1.0f;
    return total.write(p, group, slice);
  }
  const int num_chunks = (group.end() + kChunkRows - 1) / kChunkRows;
  const int clusters = min(static_cast<int>(gridDim.y), num_chunks);
  if (static_cast<int>(blockIdx.y) >= clusters) return;
  for (int chunk = blockIdx.y; chunk < num_chunks; chunk += clusters) {
    attend_part<kMTiles, kIsF8>(p, group, chunk * kChunkRows + slice * kSplitRows,
                                chunk == static_cast<int>(blockIdx.y), shared);
    cluster_sync();
    SliceSum<kMTiles> sum;
    sum.clear();
    merge_splits<kMTiles, Layout>(slice, shared, sum);
    cluster_arrive();
    if (clusters == 1 && !p.leaves_parts) {
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) total.add(m, sum.stats(m), sum.vector(m));
    } else {
      SharedItem<kMTiles>::store(p, item, chunk, slice, sum);
    }
    cluster_wait();  // nobody reads this block's shared memory any more
  }
  if (p.leaves_parts) return;
  if (clusters > 1) {
    auto* const flag = reinterpret_cast<uint32_t*>(shared + Layout::kFactors);
    if (!SharedItem<kMTiles>::is_last(p, item, slice, clusters, flag)) return;
    SharedItem<kMTiles>::merge_all(p, item, num_chunks, slice, total);
  }
  total.write(p, group, slice);
}

// Blocks of a cluster that has two chunks.
constexpr int kTwoChunks = 2 * kCluster;

// Items that see two chunks at most, each by a cluster of 16: the second chunk's blocks send their sums to those of the
// first, through no scratch.
template <bool kIsF8>
__global__ void __launch_bounds__(kThreads, 2)
    two_chunks_kernel(const __grid_constant__ AbsorbedParams p) {
  using Layout = BlockLayout<1, kIsF8>;
  extern __shared__ __align__(128) char shared[];
  let_next_start();
  wait_for_previous();
  const int rank = blockIdx.x % kTwoChunks, chunk = rank / kCluster, slice = rank % kCluster;
  const QueryGroup group = find_group(p, blockIdx.x / kTwoChunks, Layout::kRows);
  if (group.seq < 0) return;
  const bool is_lone = group.end() <= kChunkRows;
  if (chunk == 1 && is_lone) return;
  SliceSum<1> total;
  total.clear();
  if (group.kv_len == 0) {  // padding
    total.merged[0].sum = 1.0f;
    return total.write(p, group, slice);
  }
  attend_part<1, kIsF8>(p, group, chunk * kChunkRows + slice * kSplitRows, true, shared);
  cluster_sync();
  SliceSum<1> sum;
  sum.clear();
  merge_splits<1, Layout>(slice, shared, sum, chunk * kCluster);
  // Over the queries, which are done with.
  auto* const values = reinterpret_cast<float4*>(shared + Layout::kQuery) + threadIdx.x;
  auto* const stats =
      reinterpret_cast<float2*>(shared + Layout::kQuery + kThreads * sizeof(float4)) + threadIdx.x;
  if (chunk == 1) {
    *in_block(values, slice) = sum.vector(0);
    *in_block(stats, slice) = sum.stats(0);
  }
  cluster_sync();
  if (chunk == 1) return;
  total.add(0, sum.stats(0), sum.vector(0));
  if (!is_lone) total.add(0, *stats, *values);
  total.write(p, group, slice);
}

// How a call is laid out over the grid, by its shapes alone.
struct Plan {
  int m_tiles = 1, group_tokens = 1, head_groups = 1;
  bool has_two_chunks = false;
  bool shares_splits = false;  // where parts may be left
  int64_t items = 0, clusters = 1, max_chunks = 0;
  int64_t nodes = 0;  // of a call that streams; 0 = clusters
};

// Units that a call may leave in scratch, 32 KB each. With more, items are not shared.
constexpr int64_t kMostNodes = 4096;
int64_t max_nodes(int64_t items, int64_t max_chunks) {
  return std::min(items * max_chunks * kChunkUnits, kMostNodes);
}

// Query rows of the largest call that has several clusters for an item.
constexpr int64_t kSharedRows = 512;

// That a sequence can have: its length is known to the device alone.
int64_t most_rows(const ops::MlaAbsorbedArgs& args) {
  return args.block_tables.dim(1) * args.cache.block_tokens();
}

bool streams(int64_t items, int64_t max_rows) {
  return items >= kStreamItems || items * max_rows > kLongRows;
}

Plan make_plan(const ops::MlaAbsorbedArgs& args) {
  const int64_t tokens = args.out.dim(0), heads = args.out.dim(1), seqs = args.kv_len.dim(0);
  Plan plan;
  const int64_t max_rows = most_rows(args);
  plan.max_chunks = std::max<int64_t>(1, (max_rows + kChunkRows - 1) / kChunkRows);
  if (tokens == 0 || seqs == 0) return plan;
  // Tokens of one sequence are items of their own, not query rows of one: its rows come from the L2 cache for all but
  // the first, and a block takes half of the time of one with 64 query rows.
  plan.m_tiles = heads > kStreamRows ? 4 : 1;
  const int64_t rows = 16 * plan.m_tiles;
  plan.group_tokens = static_cast<int>(std::max<int64_t>(1, rows / heads));
  plan.head_groups = static_cast<int>(plan.group_tokens > 1 ? 1 : (heads + rows - 1) / rows);
  plan.items = plan.group_tokens > 1 ? (tokens + seqs * (plan.group_tokens - 1)) / plan.group_tokens
                                     : tokens * plan.head_groups;
  if (plan.m_tiles == 1 && streams(plan.items, max_rows)) {
    plan.nodes = max_nodes(plan.items, plan.max_chunks);
    return plan;
  }
  plan.shares_splits = heads == kStreamRows && tokens <= kMostSharing &&
                       tokens * max_rows <= kSharingRows &&
                       args.cache.format.latent == tensor::DType::kBf16;
  // Blocks that fit on the device at once, in clusters.
  const int64_t room = (plan.m_tiles == 1 ? 2 : 1) * num_multiprocessors() / kCluster;
  plan.has_two_chunks = plan.m_tiles == 1 && plan.max_chunks == 2 && plan.items <= kMostTwoChunks;
  if (plan.has_two_chunks) return plan;
  if (plan.items * rows <= kSharedRows)
    plan.clusters = std::clamp<int64_t>(room / plan.items, 1, plan.max_chunks);
  return plan;
}

// Query rows that scratch must hold, at most kSharedRows. An item has 16 or 64, some of which may be nobody's.
int64_t shared_rows(const ops::MlaAbsorbedArgs& args) {
  const int64_t rows = args.out.dim(0) * args.out.dim(1) * 4 + args.kv_len.dim(0) * 64;
  return std::min((rows + 63) / 64 * 64, kSharedRows);
}

// Nodes of the largest call of no more tokens that streams: every token an item, whatever this call's are.
int64_t stream_nodes(const ops::MlaAbsorbedArgs& args, int64_t max_chunks) {
  const int64_t tokens = args.out.dim(0), heads = args.out.dim(1);
  if (heads > kStreamRows || !streams(tokens, most_rows(args))) return 0;
  // Behind the units' nodes each block has two of its own.
  return max_nodes(tokens, max_chunks) + 2 * num_multiprocessors();
}

// Splits of the largest call of no more tokens that leaves those.
int64_t most_splits(const ops::MlaAbsorbedArgs& args, int64_t max_chunks) {
  if (args.out.dim(1) != kStreamRows) return 0;
  const int64_t tokens = std::min(args.out.dim(0), kMostSharing);
  return std::min(tokens * max_chunks * kChunkUnits,
                  kSharingRows / kSplitRows + tokens * kChunkUnits);
}

void carve(const ops::MlaAbsorbedArgs& args, DeviceArena& arena, AbsorbedParams& p) {
  const int64_t max_chunks = make_plan(args).max_chunks;
  const int64_t parts = std::max(stream_nodes(args, max_chunks), most_splits(args, max_chunks));
  const int64_t rows = std::max(shared_rows(args) * max_chunks, parts * kStreamRows);
  p.values = arena.take<float>(rows * kLatent);
  p.stats = arena.take<float2>(rows * kCluster);
}

template <int kMTiles, bool kIsF8>
void start(const AbsorbedParams& p, const Plan& plan, ops::Stream& stream) {
  launch(absorbed_kernel<kMTiles, kIsF8>,
         {.grid = dim3(static_cast<unsigned>(plan.items * kCluster),
                       static_cast<unsigned>(plan.clusters)),
          .block = kThreads,
          .shared_bytes = BlockLayout<kMTiles, kIsF8>::kBytes,
          .cluster = kCluster},
         stream, p);
}

template <bool kIsF8>
void start_two_chunks(const AbsorbedParams& p, const Plan& plan, ops::Stream& stream) {
  launch(two_chunks_kernel<kIsF8>,
         {.grid = static_cast<unsigned>(plan.items * kTwoChunks),
          .block = kThreads,
          .shared_bytes = BlockLayout<1, kIsF8>::kBytes,
          .cluster = kTwoChunks},
         stream, p);
}

// Starts the kernel of a call that is not wide; returns its parameters.
AbsorbedParams start(const ops::MlaAbsorbedArgs& args, const Plan& plan, bool leaves_parts,
                     ops::Stream& stream) {
  AbsorbedParams p = absorbed_params(args);
  p.group_tokens = plan.group_tokens;
  p.head_groups = plan.head_groups;
  p.max_chunks = static_cast<int>(plan.max_chunks);
  p.tickets = CudaStream::of(stream).tickets();
  p.leaves_parts = leaves_parts;
  DeviceArena arena(stream.scratch());
  carve(args, arena, p);
  p.max_nodes = static_cast<int>(plan.nodes);
  const bool is_f8 = args.cache.format.latent == tensor::DType::kF8E4M3;
  if (plan.shares_splits && leaves_parts) {
    start_shared_splits(p, stream);
  } else if (plan.nodes > 0) {
    start_stream(p, is_f8, stream);
  } else if (plan.has_two_chunks) {
    is_f8 ? start_two_chunks<true>(p, plan, stream) : start_two_chunks<false>(p, plan, stream);
  } else if (plan.m_tiles == 1) {
    is_f8 ? start<1, true>(p, plan, stream) : start<1, false>(p, plan, stream);
  } else {
    is_f8 ? start<4, true>(p, plan, stream) : start<4, false>(p, plan, stream);
  }
  return p;
}

bool takes_wide(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream) {
  return args.out.dim(1) > kStreamRows && can_run_wide(args, stream);
}

bool is_aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

bool can_run(const ops::MlaAbsorbedArgs& args) {
  const ops::KvFormat& format = args.cache.format;
  return format.latent_dim == kLatent && format.rope_dim == kRope &&
         format.latent != tensor::DType::kF32 && is_aligned(args.cache.rows.data(), 16) &&
         is_aligned(args.q_latent.data(), 16) && is_aligned(args.out.data(), 8);
}

int64_t scratch_bytes(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream) {
  if (takes_wide(args, stream)) return wide_scratch_bytes(args);
  DeviceArena arena;
  AbsorbedParams p{};
  carve(args, arena, p);
  return arena.bytes();
}

void run(const ops::MlaAbsorbedArgs& args, ops::Stream& stream) {
  if (takes_wide(args, stream)) return run_wide(args, stream);
  start(args, make_plan(args), /*leaves_parts=*/false, stream);
}

bool can_leave_parts(const ops::MlaAbsorbedArgs& args) {
  constexpr int64_t kMostSequences = 32;  // a lane each
  if (!can_run(args) || args.out.dim(1) != kStreamRows || args.kv_len.dim(0) > kMostSequences)
    return false;
  const Plan plan = make_plan(args);
  return plan.nodes > 0 || plan.clusters > 1 || plan.shares_splits;
}

PartsLeft leave_parts(const ops::MlaAbsorbedArgs& args, ops::Stream& stream) {
  const Plan plan = make_plan(args);
  return {.params = start(args, plan, /*leaves_parts=*/true, stream),
          .stream_blocks = plan.nodes > 0       ? num_multiprocessors()
                           : plan.shares_splits ? kSplitParts
                                                : kChunkParts};
}

}  // namespace fathom::cuda::absorbed
