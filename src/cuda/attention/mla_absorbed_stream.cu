// Absorbed attention for many items of 16 query rows, or for long ones: one block on each multiprocessor, through which
// its share of all cache rows streams. Sums and bits are those of mla_absorbed.cu; see there for tiles and splits.
//
// Warps have roles, so that each waits for others' results of tiles ago only:
//   2 warps    have the copy engine fill stages with tiles of 32 rows, from one item into the next
//   8 warps    add weighted values, merge and write; in bf16 they compute the scores of a later tile too
//   4 warps    scores of f8 rows, which have to be converted
//   2 warps    softmax, which waits for its own results most of the time
// So copies, in f8 scores too, are under way while the eight merge and write. Splits of a chunk are merged as they
// come, chunks of an item through scratch. Of an item that several blocks share each unit leaves a node in scratch; the
// block that comes last merges them, or all of them do (absorbed_combine.cuh), or the kernel behind this one
// (absorbed_parts.cuh).
//
// Bound by memory: 1152 (656) bytes of a cache row. Grid: multiprocessors. Shared memory: 221 (196) KB.

#include <type_traits>

#include "cuda/attention/absorbed_combine.cuh"
#include "cuda/attention/absorbed_f8.cuh"
#include "cuda/attention/absorbed_parts.cuh"
#include "cuda/attention/absorbed_stream_tile.cuh"
#include "cuda/attention/mla_absorbed.h"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda::absorbed {
namespace {

constexpr int kWalkBarrier = 3;  // 1 is meet()'s, 2 Scorer's

// Where the block begins is found by the producers, because copies are what the others wait for; the first one tells
// the others.
template <bool kIsF8>
__device__ __forceinline__ ItemWalk<kStreamRows> begin_producer(const AbsorbedParams& p,
                                                                char* shared, int warp) {
  const WalkState begin = begin_walk(p, blockIdx.x);
  if (warp == 0) {
    if (threadIdx.x % 32 == 0)
      *reinterpret_cast<WalkState*>(shared + StreamLayout<kIsF8>::kWalk) = begin;
    __syncwarp();
    named_barrier_arrive(kWalkBarrier, Roles<kIsF8>::kStreamThreads - 32);
  }
  return {p, begin};
}
// The others', which wait for it in one place of the kernel: synccheck takes warps that wait in several for apart.
template <bool kIsF8>
__device__ __forceinline__ ItemWalk<kStreamRows> begin_role(const AbsorbedParams& p, char* shared) {
  return {p, *reinterpret_cast<const WalkState*>(shared + StreamLayout<kIsF8>::kWalk)};
}

// Two warps, half of a tile's rows each. Rows that lie side by side in the cache as in the stage are one copy: with one
// for each row of 656 bytes the two warps were busy all the time. Rows behind the end become zeros (bf16) or are left
// as they are: weights of 0 keep them out.
template <bool kIsF8>
__device__ __forceinline__ void produce(const AbsorbedParams& p, char* shared, int warp) {
  using Layout = StreamLayout<kIsF8>;
  constexpr int kWarpRows = kTileRows / kProducerWarps, kRowBytes = Layout::kSourceRowBytes;
  const int lane = threadIdx.x % 32, first = warp * kWarpRows;
  const bool in_runs = Layout::kStageRowBytes == kRowBytes && p.block_tokens % kWarpRows == 0;
  const int copies = in_runs ? 1 : kWarpRows;
  Turn<Layout> turn{shared};
  for (auto walk = begin_producer<kIsF8>(p, shared, warp); walk.is_inside(); walk.next()) {
    const ItemPart part = walk.part();
    const auto kv_row_of = [&](int row) {
      return lane < copies && row < part.end_row ? kv_row_at(p, part.group.seq, row) : -1;
    };
    int32_t kv_row = kv_row_of(part.begin_row + first + lane);
    for (int row = part.begin_row; row < part.end_row; row += kTileRows, ++turn.tile) {
      const int32_t next_kv_row = kv_row_of(row + kTileRows + first + lane);
      const int bytes = max(0, min(kWarpRows, part.end_row - row - first)) * kRowBytes;
      const char* const from = p.cache.data + int64_t{kv_row} * kRowBytes;
      barrier_wait(turn.empty(), turn.stage_phase() ^ 1);
      if (const int rows = part.group.end() - row - first; !kIsF8 && rows < kWarpRows)
        clear_rows(turn.keys(), first + max(0, rows), first + kWarpRows);
      __syncwarp();
      if (lane == 0) barrier_expect(turn.full(), bytes);
      __syncwarp();
      if (kv_row >= 0)
        copy_row(shared_address(turn.keys()) + (first + lane) * Layout::kStageRowBytes, from,
                 in_runs ? bytes : kRowBytes, turn.full());
      kv_row = next_kv_row;
    }
  }
}

// The two warps that make weights of scores.
template <bool kIsF8>
__device__ __forceinline__ void weigh(const AbsorbedParams& p, char* shared, int thread) {
  using Layout = StreamLayout<kIsF8>;
  constexpr int kWeighing = 32 * kSoftmaxWarps;
  RowSoftmax<kWeighing / Layout::kRows, Layout> softmax(thread);
  Turn<Layout> turn{shared};
  for (auto walk = begin_role<kIsF8>(p, shared); walk.is_inside(); walk.next()) {
    const ItemPart part = walk.part();
    softmax.init(p, part.group);
#pragma unroll 1
    for (int row = part.begin_row; row < part.end_row; row += kTileRows, ++turn.tile) {
      if (row % kSplitRows == 0) softmax.begin_split();
      if constexpr (kIsF8) {
        static_assert(kWeighing == 2 * kTileRows);
        barrier_wait(turn.full(), turn.stage_phase());
        put_weight_scales(turn.keys(), part.group.end() - row, turn.weight_scales(), thread);
      }
      barrier_wait(turn.scored(), turn.slot_phase());
      if (turn.tile >= Layout::kAhead) {  // whose values are added: its place is free
        const Turn<Layout> before = turn.ahead(-Layout::kAhead);
        barrier_wait(before.empty(), before.stage_phase());
      }
      softmax.step(part.group, p.scale, row, turn.scores(), turn.weights(), turn.factors());
      const int end = row + kTileRows;
      if (end % kSplitRows == 0 || end >= part.end_row) {
        const float2 stats = softmax.stats();
        if (softmax.is_first()) turn.stats()[softmax.row()] = stats;
      }
      const int partial = part.group.first_partial_row();
      if (!kIsF8 && min(end, part.group.end()) > partial) {
        clear_non_finite<kWeighing>(turn.keys(), max(0, partial - row), thread);
        publish_to_products();  // and to the copy engine, which writes here next
      }
      warp_arrive(turn.weighed());
    }
  }
}

// The warps that only compute scores.
template <bool kIsF8>
__device__ __forceinline__ void score(const AbsorbedParams& p, char* shared, int thread) {
  Turn<StreamLayout<kIsF8>> turn{shared};
  Scorer<kIsF8> scorer{p, shared, thread};
  for (auto walk = begin_role<kIsF8>(p, shared); walk.is_inside(); walk.next()) {
    const ItemPart part = walk.part();
    if (part.begin_row >= part.end_row) continue;
    scorer.begin_item(part.group);
#pragma unroll 1
    for (int row = part.begin_row; row < part.end_row; row += kTileRows, ++turn.tile) {
      barrier_wait(turn.weighed(), turn.slot_phase() ^ 1);
      scorer.score(turn);
    }
  }
}

// The eight warps that add values.
template <bool kIsF8>
struct Consumer {
  using Layout = StreamLayout<kIsF8>;
  static constexpr bool kScores = !Roles<kIsF8>::kHasScorers;

  const AbsorbedParams& p;
  char* const shared;
  Turn<Layout> turn{shared};
  std::conditional_t<kScores, Scorer<kIsF8>, int> scorer;
  bool has_next_queries = false;  // they are there, or on their way
  static_assert(Layout::kStages < kSplitRows / kTileRows + Layout::kAhead);

  // Loads queries and computes the first tiles' scores.
  __device__ __forceinline__ void begin_item(const ItemPart& part) {
    scorer.begin_item(part.group, has_next_queries);
    has_next_queries = false;
#pragma unroll 1
    for (int tile = 0; tile < Layout::kAhead; ++tile)
      if (part.begin_row + tile * kTileRows < part.end_row) scorer.score(turn.ahead(tile));
  }

  // While all wait for memory the next item's queries are asked for: behind the first split, when this warp has seen
  // the first stage's second use, so all warps have added the first use and have their queries.
  __device__ __forceinline__ void begin_next(ItemWalk<kStreamRows> walk) {
    walk.next();
    if (!walk.is_inside()) return;
    const ItemPart part = walk.part();
    if (part.begin_row >= part.end_row) return;
    scorer.begin_queries(part.group);
    has_next_queries = true;
  }

  // Rows [begin, end), if any, of an item whose rows that this block has end at part_end.
  __device__ __forceinline__ void attend_split(int begin, int end, int part_end, Node& node) {
    node.clear();
    if (begin >= end) return;
#pragma unroll 1
    for (int row = begin; row < end; row += kTileRows)
      add_tile<kIsF8>(scorer, turn, row + Layout::kAhead * kTileRows < part_end, node.values);
    end_split<kIsF8>(turn, node);
  }

  // Adds up leaves, runs of them by a tree: the splits of a whole item's chunks, those of the units of an item that
  // several blocks share, or in the last of these blocks the units of its chunks.
  __device__ __forceinline__ void attend_item(const ItemPart& part,
                                              const ItemWalk<kStreamRows>& walk) {
    const Shares& shares = walk.shares();
    constexpr int kSplitShift = 7;
    static_assert(1 << kSplitShift == kSplitRows && 1 << kChunkShift == kChunkRows);
    ItemSum sum{SharedNodes::item_sum(p)};
    SplitTree tree;
    Node node;
    bool merges = false;
    int leaf = part.begin_row >> kSplitShift, end = (part.end_row + kSplitRows - 1) >> kSplitShift;
    int shift = kChunkShift - kSplitShift;  // leaves of a run
    if (!part.is_whole) {
      shift = shares.row_shift - kSplitShift;
      end = part.part_end << shift;
    }
#pragma unroll 1
    for (;; ++leaf) {
      const int index = leaf & ((1 << shift) - 1);
      const bool ends_item = leaf + 1 >= end, ends_run = ends_item || index + 1 == 1 << shift;
      if (merges) {
        SharedNodes::load(p, part.first_unit + leaf, node);
      } else {
        const int row = leaf << kSplitShift;
        if constexpr (kScores)
          if (row == part.begin_row + kSplitRows && row < part.end_row) begin_next(walk);
        attend_split(row, min(row + kSplitRows, part.end_row), part.end_row, node);
      }
      tree.add(node, index, ends_run, reinterpret_cast<float4*>(shared + Layout::kPair),
               SharedNodes::half_chunk(p));
      if (!ends_run) continue;
      if (part.is_whole || merges) {
        const bool is_first = leaf >> shift == 0;
        // Behind it one or two leaves make no pair that is held there.
        if (is_first && !ends_item && end - leaf <= 3)
          sum.values = reinterpret_cast<float4*>(shared + Layout::kPair);
        sum.add(node, is_first, ends_item);
        if (ends_item) return write_item<kIsF8>(p, part.group, node);
        continue;
      }
      const int unit = part.first_unit + (leaf >> shift);
      if (p.leaves_parts) {
        PartsPlace::leave<kIsF8>(p, unit, node);
        if (ends_item) return;
        continue;
      }
      SharedNodes::store(p, unit, node);
      if (!ends_item) continue;
      if (!adds_up_alone(part, shares, walk.is_last())) return;
      merges = true;
      leaf = -1;
      end = part.num_units;
      shift = kChunkShift - shares.row_shift;
    }
  }

  // What is left when this block has stored its nodes. Items of many blocks are added up here by all of them.
  __device__ __forceinline__ bool adds_up_alone(const ItemPart& part, const Shares& shares,
                                                bool is_last_item) const {
    const int first = part.first_unit / shares.block_units;
    const int blocks = (part.first_unit + part.num_units - 1) / shares.block_units - first + 1;
    auto* const flag = reinterpret_cast<uint32_t*>(shared + Layout::kFlag);
    const ItemCounters item = ItemCounters::of(p, first);
    const bool is_together = blocks > kFewSharers;
    const bool are_all = arrive(item, blocks, is_together && is_last_item, flag);
    if (are_all && is_together)
      combine_item<kIsF8>(p, part, kChunkShift - shares.row_shift, blocks, item, flag,
                          shared + Layout::kPair);
    return are_all && !is_together;
  }

  __device__ __forceinline__ void run() {
    for (auto walk = begin_role<kIsF8>(p, shared); walk.is_inside(); walk.next()) {
      const ItemPart part = walk.part();
      if constexpr (kScores)
        if (part.begin_row < part.end_row) begin_item(part);
      attend_item(part, walk);
    }
  }
};

template <bool kIsF8>
__global__ void __launch_bounds__(Roles<kIsF8>::kStreamThreads, 1)
    stream_kernel(const __grid_constant__ AbsorbedParams p) {
  using Layout = StreamLayout<kIsF8>;
  using Roles = Roles<kIsF8>;
  extern __shared__ __align__(128) char shared[];
  if (!p.leaves_parts) let_next_start();
  begin_barriers<kIsF8>(shared);
  __syncthreads();
  wait_for_previous();
  if (p.leaves_parts) let_next_start();  // who adds them up reads lengths before its own wait
  const auto thread = static_cast<int>(threadIdx.x), helper = thread - Roles::kFirstHelper;
  const bool is_producer = helper >= 0 && helper < 32 * kProducerWarps;
  if (!is_producer) named_barrier_sync(kWalkBarrier, Roles::kStreamThreads - 32);
  if (thread < kThreads) {
    take_registers<Roles::kRegisters>();
    if constexpr (Roles::kHasScorers) {
      Consumer<kIsF8>{p, shared, {shared}, 0}.run();
    } else {
      Consumer<kIsF8>{p, shared, {shared}, {p, shared, thread}}.run();
    }
  } else if (helper < 0) {
    score<kIsF8>(p, shared, thread - kThreads);
  } else {
    give_registers<Roles::kHelperRegisters>();
    if (is_producer) {
      produce<kIsF8>(p, shared, helper / 32);
    } else {
      weigh<kIsF8>(p, shared, helper - 32 * kProducerWarps);
    }
  }
}

}  // namespace

void start_stream(const AbsorbedParams& p, bool is_f8, ops::Stream& stream) {
  const auto start = [&](auto f8) {
    constexpr bool kIsF8 = decltype(f8)::value;
    launch(stream_kernel<kIsF8>,
           {.grid = static_cast<unsigned>(num_multiprocessors()),
            .block = Roles<kIsF8>::kStreamThreads,
            .shared_bytes = StreamLayout<kIsF8>::kBytes},
           stream, p);
  };
  is_f8 ? start(std::true_type{}) : start(std::false_type{});
}

}  // namespace fathom::cuda::absorbed
