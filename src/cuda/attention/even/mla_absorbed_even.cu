// Absorbed attention for 9 tokens of up to 16 heads to as many as there are multiprocessors, that see up to two chunks:
// 1, 2, 4 or 8 blocks have a token (absorbed_even.cuh), as many as find a multiprocessor each. Sums and bits are those
// of mla_absorbed.cu.
//
// Warps have the roles of mla_absorbed_stream.cu, where such a call is for the most part code that runs once, and
// shares that end at odd places. Here a block has one token and knows it by its number, leaves one sum of each chunk,
// and the block that comes last adds up the token's, with its own at hand where it sees in time that it is the last.
// Lengths that differ much leave blocks idle.
//
// Bound by memory: 1152 (656) bytes of a cache row. Grid: tokens times their blocks. Shared memory: 221 (196) KB.

#include <algorithm>

#include "cuda/attention/absorbed_combine.cuh"
#include "cuda/attention/absorbed_f8.cuh"
#include "cuda/attention/absorbed_stream_tile.cuh"
#include "cuda/attention/choice.h"
#include "cuda/attention/even/absorbed_even.cuh"
#include "cuda/attention/even/ops.h"
#include "cuda/attention/mla_absorbed.h"
#include "cuda/attention/ops.h"
#include "cuda/mma/panels.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/runtime/device_arena.h"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda::absorbed {
namespace {

constexpr int kItemBarrier = 3;  // 1 is meet()'s, 2 Scorer's

// What a block has, as its producers find it.
struct EvenItem {
  QueryGroup group;
  EvenShare share;
};

template <bool kIsF8>
struct EvenLayout : StreamLayout<kIsF8> {
  static constexpr int kItem = (StreamLayout<kIsF8>::kBytes + 15) / 16 * 16;
  static constexpr int kBytes = kItem + sizeof(EvenItem);
  static_assert(kBytes <= 227 * 1024);
  // What EvenNodes has lies over stages and scores.
  static constexpr int kNodes = kIsF8 ? EvenNodes::kAtOnce : EvenNodes::kItem;
  static_assert(kNodes * EvenNodes::kNodeBytes <= StreamLayout<kIsF8>::kPair);
};
// Blocks of an item at most, 1 << this: eight need a place more than f8 stages leave.
template <bool kIsF8>
constexpr int kMostShift = kIsF8 ? 2 : 3;

template <bool kIsF8>
struct EvenBlock {
  using Layout = StreamLayout<kIsF8>;
  static constexpr bool kScores = !Roles<kIsF8>::kHasScorers;
  static constexpr bool kMayKeep = !kIsF8;

  const AbsorbedParams& p;
  char* const shared;
  const int shift;

  __device__ __forceinline__ int number() const { return static_cast<int>(blockIdx.x) >> shift; }
  __device__ __forceinline__ EvenItem& item() const {
    return *reinterpret_cast<EvenItem*>(shared + EvenLayout<kIsF8>::kItem);
  }

  // Two warps, half of a tile's rows each, as in mla_absorbed_stream.cu. Where the first rows lie is asked for together
  // with the item's length: as long as tables have room for more than a chunk, there is an entry for them.
  __device__ __forceinline__ void produce(int warp) const {
    constexpr int kWarpRows = kTileRows / kProducerWarps, kRowBytes = Layout::kSourceRowBytes;
    const int lane = threadIdx.x % 32, first = warp * kWarpRows;
    const int rank = static_cast<int>(blockIdx.x) & ((1 << shift) - 1);
    const bool in_runs = Layout::kStageRowBytes == kRowBytes && p.block_tokens % kWarpRows == 0;
    const int copies = in_runs ? 1 : kWarpRows;
    const int early_row = (rank << (kChunkShift - shift)) + first + lane;
    int32_t kv_row = -1;
    if (lane < copies && p.max_chunks > 1 && number() < p.seqs)
      kv_row = kv_row_at(p, number(), early_row);
    const QueryGroup group = find_group(p, number(), kStreamRows);
    const EvenShare share = EvenShare::of(group.seq < 0 ? 0 : group.end(), shift, rank);
    if (warp == 0) {
      if (lane == 0) item() = {group, share};
      __syncwarp();
      named_barrier_arrive(kItemBarrier, Roles<kIsF8>::kStreamThreads - 32);
    }
    const auto kv_row_of = [&](int tile) {
      const int row = share.row(tile) + first + lane;
      return tile < share.tiles && lane < copies && row < share.rows ? kv_row_at(p, group.seq, row)
                                                                     : -1;
    };
    if (p.max_chunks == 1 || group.seq != number() || share.row(0) + first + lane != early_row ||
        early_row >= share.rows)
      kv_row = kv_row_of(0);
    Turn<Layout> turn{shared};
    for (; turn.tile < share.tiles; ++turn.tile) {
      const int32_t next_kv_row = kv_row_of(turn.tile + 1);
      const int rows = share.rows - share.row(turn.tile) - first;
      const int bytes = max(0, min(kWarpRows, rows)) * kRowBytes;
      barrier_wait(turn.empty(), turn.stage_phase() ^ 1);
      if (!kIsF8 && rows < kWarpRows)
        clear_rows(turn.keys(), first + max(0, rows), first + kWarpRows);
      __syncwarp();
      if (lane == 0) barrier_expect(turn.full(), bytes);
      __syncwarp();
      if (kv_row >= 0)
        copy_row(shared_address(turn.keys()) + (first + lane) * Layout::kStageRowBytes,
                 p.cache.data + int64_t{kv_row} * kRowBytes, in_runs ? bytes : kRowBytes,
                 turn.full());
      kv_row = next_kv_row;
    }
  }

  // The two warps that make weights of scores.
  __device__ __forceinline__ void weigh(int thread) const {
    constexpr int kWeighing = 32 * kSoftmaxWarps;
    RowSoftmax<kWeighing / Layout::kRows, Layout> softmax(thread);
    Turn<Layout> turn{shared};
    const QueryGroup group = item().group;
    const EvenShare share = item().share;
    if (share.tiles > 0) softmax.init(p, group);
#pragma unroll 1
    for (; turn.tile < share.tiles; ++turn.tile) {
      const int row = share.row(turn.tile), end = row + kTileRows;
      if (row % kSplitRows == 0) softmax.begin_split();
      if constexpr (kIsF8) {
        static_assert(kWeighing == 2 * kTileRows);
        barrier_wait(turn.full(), turn.stage_phase());
        put_weight_scales(turn.keys(), share.rows - row, turn.weight_scales(), thread);
      }
      barrier_wait(turn.scored(), turn.slot_phase());
      if (turn.tile >= Layout::kAhead) {  // whose values are added: its place is free
        const Turn<Layout> before = turn.ahead(-Layout::kAhead);
        barrier_wait(before.empty(), before.stage_phase());
      }
      softmax.step(group, p.scale, row, turn.scores(), turn.weights(), turn.factors());
      if (end % kSplitRows == 0 || end >= share.rows) {
        const float2 stats = softmax.stats();
        if (softmax.is_first()) turn.stats()[softmax.row()] = stats;
      }
      const int partial = group.first_partial_row();
      if (!kIsF8 && min(end, share.rows) > partial) {
        clear_non_finite<kWeighing>(turn.keys(), max(0, partial - row), thread);
        publish_to_products();  // and to the copy engine, which writes here next
      }
      warp_arrive(turn.weighed());
    }
  }

  // The warps that only compute scores.
  __device__ __forceinline__ void score(int thread) const {
    Turn<Layout> turn{shared};
    Scorer<kIsF8> scorer{p, shared, thread};
    const int tiles = item().share.tiles;
    if (tiles > 0) scorer.begin_item(item().group);
#pragma unroll 1
    for (; turn.tile < tiles; ++turn.tile) {
      barrier_wait(turn.weighed(), turn.slot_phase() ^ 1);
      scorer.score(turn);
    }
  }

  // The eight warps that add values.
  __device__ __forceinline__ void add(Scorer<kIsF8>& scorer) const {
    const EvenShare& share = item().share;  // read where it is used: registers are scarce
    if (item().group.seq < 0) return;
    Node node;
    if (share.rows == 0 || item().group.kv_len == 0) {  // padding
      node.clear();
      if (share.rank == 0) write_item<kIsF8>(p, item().group, node);
      return;
    }
    const int tiles = share.tiles;
    if (tiles == 0) return;
    Turn<Layout> turn{shared};
    if constexpr (kScores) {
      scorer.begin_item({}, /*has_begun=*/true);
#pragma unroll 1
      for (int tile = 0; tile < min(Layout::kAhead, tiles); ++tile) scorer.score(turn.ahead(tile));
    }
    auto* const pair = reinterpret_cast<float4*>(shared + Layout::kPair);
    auto* const flag = reinterpret_cast<uint32_t*>(shared + Layout::kFlag);
    uint32_t arrived = 0;
    SplitTree tree;
    ItemSum sum{SharedNodes::item_sum(p)};
#pragma unroll 1
    while (turn.tile < tiles) {
      const int index = (turn.tile & ((1 << (kChunkTileShift - shift)) - 1)) >> 2;
      const int end = min((turn.tile | 3) + 1, tiles);
      node.clear();
#pragma unroll 1
      while (turn.tile < end) {
        if (kMayKeep && threadIdx.x == 0 && turn.tile == tiles - 1)
          arrived = load_relaxed(p.tickets + number());
        add_tile<kIsF8>(scorer, turn, turn.tile + Layout::kAhead < tiles, node.values);
      }
      end_split<kIsF8>(turn, node);
      const bool ends_item = end >= tiles;
      const bool ends_run = ends_item || share.chunk(end) != share.chunk(end - 1);
      tree.add(node, index, ends_run, pair, SharedNodes::half_chunk(p));
      if (!ends_run) continue;
      const int chunk = share.chunk(end - 1);
      if (share.sharers(0) == 1) {
        sum.add(node, chunk == 0, ends_item);
        continue;
      }
      if (kMayKeep && ends_item) {
        if (threadIdx.x == 0) *flag = keeps(arrived) ? chunk + 1 : 0;
        __syncwarp();
        meet();
        if (*flag != 0) break;
      }
      SharedNodes::store(p, EvenNodes::unit(p, number(), chunk, share, share.rank), node);
    }
    if (const int sharers = share.sharers(0); sharers > 1) {
      const int kept = kMayKeep ? static_cast<int>(*flag) - 1 : -1;
      const ItemCounters counters = ItemCounters::of(p, number());
      if (kept < 0 && !arrive(counters, sharers, /*may_wait=*/false, flag)) return;
      EvenNodes{reinterpret_cast<float4*>(shared), pair, shared + Layout::kQuery}.add_up(
          p, number(), share, kept, node);
    }
    write_item<kIsF8>(p, item().group, node);
  }

 private:
  __device__ __forceinline__ static uint32_t load_relaxed(const uint32_t* from) {
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
  }
  // Whether all other blocks of the item have left their sums, so that this one needs to leave none: by one thread.
  __device__ __forceinline__ bool keeps(uint32_t arrived) const {
    if (shift == 3 || arrived + 1 != static_cast<uint32_t>(item().share.sharers(0))) return false;
    __threadfence();
    p.tickets[number()] = 0;
    return true;
  }
};

template <bool kIsF8>
__global__ void __launch_bounds__(Roles<kIsF8>::kStreamThreads, 1)
    even_kernel(const __grid_constant__ AbsorbedParams p, int shift) {
  using Layout = StreamLayout<kIsF8>;
  using Roles = Roles<kIsF8>;
  extern __shared__ __align__(128) char shared[];
  let_next_start();
  begin_barriers<kIsF8>(shared);
  __syncthreads();
  wait_for_previous();
  const EvenBlock<kIsF8> block{p, shared, shift};
  const auto thread = static_cast<int>(threadIdx.x), helper = thread - Roles::kFirstHelper;
  const bool is_producer = helper >= 0 && helper < 32 * kProducerWarps;
  if (!kIsF8 && thread < kThreads && block.number() < p.tokens) {  // an item is a token
    QueryGroup group;
    group.first_token = block.number();
    group.num_tokens = 1;
    group.num_heads = p.heads;
    load_queries<Layout, kThreads>(p, group, shared, thread);
    commit_copies();
  }
  if (!is_producer) named_barrier_sync(kItemBarrier, Roles::kStreamThreads - 32);
  if (thread < kThreads) {
    take_registers<Roles::kRegisters>();
    Scorer<kIsF8> scorer{p, shared, thread};
    block.add(scorer);
  } else if (helper < 0) {
    block.score(thread - kThreads);
  } else {
    give_registers<Roles::kHelperRegisters>();
    if (is_producer) {
      block.produce(helper / 32);
    } else {
      block.weigh(helper - 32 * kProducerWarps);
    }
  }
}

constexpr int64_t kLeastTokens = 9, kMostRows = 2 * kChunkRows;
static_assert(kMostRows == kTwoChunkRows);  // so that steps are captured apart for both at once

bool takes_even(const ops::MlaAbsorbedArgs& args) {
  const int64_t tokens = args.out.dim(0), heads = args.out.dim(1);
  return takes_tuned_attention() && can_run(args) && args.kv_len.dim(0) > 0 &&
         heads > kStreamRows / 2 && heads <= kStreamRows && tokens >= kLeastTokens &&
         tokens <= num_multiprocessors() &&
         args.block_tables.dim(1) * args.cache.block_tokens() <= kMostRows;
}

// Scratch is the same for all calls: a node of each block and chunk, and two of a block's own (SharedNodes).
constexpr int kChunks = kMostRows / kChunkRows;

void carve(DeviceArena& arena, AbsorbedParams& p) {
  const int64_t blocks = num_multiprocessors(), nodes = (kChunks + 2) * blocks;
  p.max_nodes = static_cast<int>(kChunks * blocks);
  p.values = arena.take<float>(nodes * kStreamRows * kLatent);
  p.stats = arena.take<float2>(nodes * kStreamRows);
}

template <bool kIsF8>
void start(const AbsorbedParams& p, ops::Stream& stream) {
  int shift = 0;
  while (shift < kMostShift<kIsF8> && p.tokens << (shift + 1) <= num_multiprocessors()) ++shift;
  launch(even_kernel<kIsF8>,
         {.grid = static_cast<unsigned>(p.tokens << shift),
          .block = Roles<kIsF8>::kStreamThreads,
          .shared_bytes = EvenLayout<kIsF8>::kBytes},
         stream, p, shift);
}

// Also of calls that do not run here: a step is measured with more rows than it may have later.
int64_t even_scratch_bytes(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream) {
  DeviceArena arena;
  AbsorbedParams p{};
  if (args.out.dim(0) >= kLeastTokens && args.out.dim(1) <= kStreamRows) carve(arena, p);
  return std::max(arena.bytes(), mla_absorbed_scratch(args, stream));
}

void run_even(const ops::MlaAbsorbedArgs& args, ops::Stream& stream) {
  if (!takes_even(args)) return cuda::mla_absorbed(args, stream);
  AbsorbedParams p = absorbed_params(args);
  p.group_tokens = p.head_groups = 1;
  p.max_chunks = static_cast<int>(std::max<int64_t>(
      1, (args.block_tables.dim(1) * args.cache.block_tokens() + kChunkRows - 1) / kChunkRows));
  p.tickets = CudaStream::of(stream).tickets();
  DeviceArena arena(stream.scratch());
  carve(arena, p);
  args.cache.format.latent == tensor::DType::kF8E4M3 ? start<true>(p, stream)
                                                     : start<false>(p, stream);
}

}  // namespace
}  // namespace fathom::cuda::absorbed

namespace fathom::cuda {

void add_even_attention(ops::Backend& backend) {
  backend.mla_absorbed = {absorbed::run_even, absorbed::even_scratch_bytes};
  backend.long_attention.push_back({.rows = absorbed::kTwoChunkRows,
                                    .tokens = num_multiprocessors() + 1,
                                    .of_one_sequence = true,
                                    .op = "mla_absorbed"});
}

}  // namespace fathom::cuda
