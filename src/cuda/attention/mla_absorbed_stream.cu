// Absorbed attention for many items of 16 query rows, or for long ones: one block on each multiprocessor, through which
// its share of all cache rows streams. Sums and bits are those of mla_absorbed.cu; see there for tiles and splits.
//
// Warps have roles, so that each waits for others' results of tiles ago only:
//   2 warps    have the copy engine fill stages with tiles of 32 rows, from one item into the next
//   8 warps    scores of tile i + 2, weighted values of tile i: the tensor cores
//   2 warps    softmax of tile i + 1, which waits for its own results most of the time
// Copies are under way while the eight merge, write and load queries. Splits of a chunk are merged as they come, chunks
// of an item through scratch. Of an item that several blocks share each unit leaves a node in scratch; the block that
// comes last merges them, or all of them do (absorbed_combine.cuh).
//
// Bound by memory: 1152 (656) bytes of a cache row. Grid: multiprocessors. Shared memory: 202 (182) KB.

#include <type_traits>

#include "cuda/attention/absorbed_combine.cuh"
#include "cuda/attention/absorbed_f8.cuh"
#include "cuda/attention/mla_absorbed.h"
#include "cuda/mma/panels.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda::absorbed {
namespace {

constexpr int kProducerWarps = 2, kSoftmaxWarps = 2;
constexpr int kHelpers = 32 * (kProducerWarps + kSoftmaxWarps);
constexpr int kHelperRegisters = 72, kRegisters = 216;  // they move between whole warpgroups
constexpr int kStreamThreads = kThreads + kHelpers;
static_assert(kHelpers == 128);
// Tiles whose scores are there or on their way when one's values are added.
constexpr int kAhead = 2;

template <bool kIsF8>
struct StreamLayout {
  static constexpr int kRows = kStreamRows;
  static constexpr int kStages = kIsF8 ? 6 : 4;
  static constexpr int kSourceRowBytes = kIsF8 ? kF8RowBytes : kDim * 2;
  static constexpr int kStageRowBytes = kIsF8 ? kF8RowBytes : kRowBytes;
  static constexpr int kStageBytes = kTileRows * kStageRowBytes;
  static constexpr int kScoreStride = 40;
  static constexpr int kScoreBytes = 4 * kRows * kScoreStride * 4;

  static constexpr int kScores = kStages * kStageBytes;         // of kAhead tiles
  static constexpr int kPair = kScores + kAhead * kScoreBytes;  // SplitTree's
  static constexpr int kQuery = kPair;  // until a warp has its own in registers
  static constexpr int kWeightBytes = kRows * kWeightStride * 2;
  static constexpr int kWeights = kPair + kRows * kLatent * 4;      // of kAhead tiles
  static constexpr int kStats = kWeights + kAhead * kWeightBytes;   // of the last tiles of splits
  static constexpr int kFactors = kStats + 2 * kAhead * kRows * 8;  // of kAhead tiles
  static constexpr int kWeightScales = kFactors + kAhead * kRows * 4;  // of each stage in f8
  // Barriers: a stage holds its tile, and its tile is done with; a tile's scores are there, and its weights.
  static constexpr int kFull = kWeightScales + (kIsF8 ? kStages * kWeightScaleBytes : 0);
  static constexpr int kEmpty = kFull + kStages * 8;
  static constexpr int kScored = kEmpty + kStages * 8;
  static constexpr int kWeighed = kScored + kAhead * 8;
  static constexpr int kFlag = kWeighed + kAhead * 8;
  static constexpr int kBytes = kFlag + 16;
  static_assert(kPair % 16 == 0 && kScores % 16 == 0 && kFull % 8 == 0 && kWeightScales % 16 == 0);
  static_assert(kRows * kRowBytes <= kRows * kLatent * 4);
  static_assert(kBytes <= 227 * 1024);
};

// A tile's number among all of this block's, as all roles count them: where it lies, and which use of that this is.
template <class Layout>
struct Turn {
  char* const shared;
  int tile = 0;

  __device__ __forceinline__ Turn ahead(int tiles) const { return {shared, tile + tiles}; }
  __device__ __forceinline__ int stage() const { return tile % Layout::kStages; }
  __device__ __forceinline__ int slot() const { return tile % kAhead; }

  __device__ __forceinline__ char* keys() const { return shared + stage() * Layout::kStageBytes; }
  __device__ __forceinline__ char* weight_scales() const {
    return shared + Layout::kWeightScales + stage() * kWeightScaleBytes;
  }
  __device__ __forceinline__ float* scores() const {
    return reinterpret_cast<float*>(shared + Layout::kScores + slot() * Layout::kScoreBytes);
  }
  __device__ __forceinline__ Bf16* weights() const {
    return reinterpret_cast<Bf16*>(shared + Layout::kWeights + slot() * Layout::kWeightBytes);
  }
  __device__ __forceinline__ float* factors() const {
    return reinterpret_cast<float*>(shared + Layout::kFactors + slot() * Layout::kRows * 4);
  }
  // Maxima and sums of the split that ends with the tile. They are read before scores of kAhead tiles on, so after
  // twice as many they may be written again.
  __device__ __forceinline__ float2* stats() const {
    return reinterpret_cast<float2*>(shared + Layout::kStats) + tile % (2 * kAhead) * Layout::kRows;
  }

  __device__ __forceinline__ uint32_t full() const {
    return shared_address(shared + Layout::kFull) + stage() * 8;
  }
  __device__ __forceinline__ uint32_t empty() const {
    return shared_address(shared + Layout::kEmpty) + stage() * 8;
  }
  __device__ __forceinline__ uint32_t scored() const {
    return shared_address(shared + Layout::kScored) + slot() * 8;
  }
  __device__ __forceinline__ uint32_t weighed() const {
    return shared_address(shared + Layout::kWeighed) + slot() * 8;
  }
  __device__ __forceinline__ uint32_t stage_phase() const { return tile / Layout::kStages & 1; }
  __device__ __forceinline__ uint32_t slot_phase() const { return tile / kAhead & 1; }
};

// What a warp's lanes have written and read is so for whoever waits at the barrier.
__device__ __forceinline__ void warp_arrive(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

// Two warps, half of a tile's rows each. Rows that lie side by side in the cache as in the stage are one copy: with one
// for each row of 656 bytes the two warps were busy all the time. Rows behind the end are left as they are: weights of
// 0 and clear_non_finite() keep them out.
template <class Layout>
__device__ __forceinline__ void produce(const AbsorbedParams& p, ItemWalk<kStreamRows> walk,
                                        char* shared, int warp) {
  constexpr int kWarpRows = kTileRows / kProducerWarps, kRowBytes = Layout::kSourceRowBytes;
  const int lane = threadIdx.x % 32, first = warp * kWarpRows;
  const bool in_runs = Layout::kStageRowBytes == kRowBytes && p.block_tokens % kWarpRows == 0;
  const int copies = in_runs ? 1 : kWarpRows;
  Turn<Layout> turn{shared};
  for (; walk.is_inside(); walk.next()) {
    const ItemPart part = walk.part();
    const auto kv_row_of = [&](int row) {
      return lane < copies && row < part.end_row ? kv_row_at(p, part.group.seq, row) : -1;
    };
    int32_t kv_row = kv_row_of(part.begin_row + first + lane);
    for (int row = part.begin_row; row < part.end_row; row += kTileRows, ++turn.tile) {
      const int32_t next_kv_row = kv_row_of(row + kTileRows + first + lane);
      const int bytes = max(0, min(kWarpRows, part.end_row - row - first)) * kRowBytes;
      barrier_wait(turn.empty(), turn.stage_phase() ^ 1);
      if (lane == 0) barrier_expect(turn.full(), bytes);
      __syncwarp();
      if (kv_row >= 0)
        copy_row(shared_address(turn.keys()) + (first + lane) * Layout::kStageRowBytes,
                 p.cache.data + int64_t{kv_row} * kRowBytes, in_runs ? bytes : kRowBytes,
                 turn.full());
      kv_row = next_kv_row;
    }
  }
}

// The two warps that make weights of scores.
template <bool kIsF8>
__device__ __forceinline__ void weigh(const AbsorbedParams& p, ItemWalk<kStreamRows> walk,
                                      char* shared, int thread) {
  using Layout = StreamLayout<kIsF8>;
  constexpr int kWeighing = 32 * kSoftmaxWarps;
  RowSoftmax<kWeighing / Layout::kRows, Layout> softmax(thread);
  Turn<Layout> turn{shared};
  for (; walk.is_inside(); walk.next()) {
    const ItemPart part = walk.part();
    softmax.init(p, part.group);
#pragma unroll 1
    for (int row = part.begin_row; row < part.end_row; row += kTileRows, ++turn.tile) {
      if (row % kSplitRows == 0) softmax.begin_split();
      barrier_wait(turn.scored(), turn.slot_phase());
      softmax.step(part.group, p.scale, row, turn.scores(), turn.weights(), turn.factors());
      const int end = row + kTileRows;
      if (end % kSplitRows == 0 || end >= part.end_row) {
        const float2 stats = softmax.stats();
        if (softmax.is_first()) turn.stats()[softmax.row()] = stats;
      }
      const int partial = part.group.first_partial_row();
      if (!kIsF8 && end > partial) {
        clear_non_finite<kWeighing>(turn.keys(), max(0, partial - row), thread);
        publish_to_products();  // and to the copy engine, which writes here next
      }
      warp_arrive(turn.weighed());
    }
  }
}

// The eight warps that compute.
template <bool kIsF8>
struct Consumer {
  using Layout = StreamLayout<kIsF8>;

  const AbsorbedParams& p;
  char* const shared;
  Turn<Layout> turn{shared};
  std::conditional_t<kIsF8, F8Queries, Queries<1>> queries{};

  // Of the tile `tiles` on, which begins with row `row` of the sequence.
  __device__ __forceinline__ void score(const QueryGroup& group, int row, int tiles) const {
    const Turn<Layout> of = turn.ahead(tiles);
    barrier_wait(of.full(), of.stage_phase());
    if constexpr (kIsF8) {
      score_f8_tile<Layout>(queries, of.keys(), group.end() - row, of.scores(), of.weight_scales());
    } else {
      score_tile<1, Layout>(queries, shared_address(of.keys()), of.scores());
    }
    warp_arrive(of.scored());
  }
  __device__ __forceinline__ void add(float (&values)[1][8][4]) const {
    if constexpr (kIsF8) {
      add_f8_values(turn.keys(), turn.weight_scales(), turn.weights(), turn.factors(), values);
    } else {
      add_values<1>(shared_address(turn.keys()), turn.weights(), turn.factors(), values);
    }
  }

  // Loads queries and computes the first tiles' scores.
  __device__ __forceinline__ void begin_item(const ItemPart& part) {
    meet();  // nobody needs what lies in the place of queries
    load_queries<Layout>(p, part.group, shared);
    commit_copies();
    wait_copies<0>();
    meet();
    queries.init(shared + Layout::kQuery, threadIdx.x / 64);
#pragma unroll 1
    for (int tile = 0; tile < kAhead; ++tile) {
      const int row = part.begin_row + tile * kTileRows;
      if (row < part.end_row) score(part.group, row, tile);
    }
  }

  // Adds the tile to `values`, scaled by what the softmax says, and computes the scores of a later one.
  __device__ __forceinline__ void add_tile(const QueryGroup& group, int row, int part_end,
                                           float (&values)[1][8][4]) {
    barrier_wait(turn.weighed(), turn.slot_phase());
    add(values);
    warp_arrive(turn.empty());
    const int later = row + kAhead * kTileRows;
    if (later < part_end) score(group, later, kAhead);
    ++turn.tile;
  }

  // Rows [begin, end), if any, of an item whose rows that this block has end at part_end.
  __device__ __forceinline__ void attend_split(const QueryGroup& group, int begin, int end,
                                               int part_end, Node& node) {
    node.clear();
    if (begin >= end) return;
#pragma unroll 1
    for (int row = begin; row < end; row += kTileRows) add_tile(group, row, part_end, node.values);
    if constexpr (kIsF8) end_f8_values(node.values);
    const float2* const stats = turn.ahead(-1).stats();
    const int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 s = stats[g + half * 8];
      node.rows[half] = {s.x, s.y};
    }
  }

  // Adds up leaves, runs of them by a tree: the splits of a whole item's chunks, those of the units of an item that
  // several blocks share, or in the last of these blocks the units of its chunks.
  __device__ __forceinline__ void attend_item(const ItemPart& part, const Shares& shares,
                                              bool is_last_item) {
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
        attend_split(part.group, row, min(row + kSplitRows, part.end_row), part.end_row, node);
      }
      tree.add(node, index, ends_run, reinterpret_cast<float4*>(shared + Layout::kPair),
               SharedNodes::half_chunk(p));
      if (!ends_run) continue;
      if (part.is_whole || merges) {
        sum.add(node, leaf >> shift == 0, ends_item);
        if (ends_item) return write_item<kIsF8>(p, part.group, node);
        continue;
      }
      SharedNodes::store(p, part.first_unit + (leaf >> shift), node);
      if (!ends_item) continue;
      if (!adds_up_alone(part, shares, is_last_item)) return;
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
    // A block shares at most one of the items that it begins.
    auto* const tickets = reinterpret_cast<ItemTickets*>(p.tickets) + first;
    const bool is_together = blocks > kFewSharers;
    const bool are_all = arrive(tickets, blocks, is_together && is_last_item, flag);
    if (are_all && is_together)
      combine_item<kIsF8>(p, part, shares, blocks, tickets, flag, shared + Layout::kPair);
    leave(tickets, blocks);
    return are_all && !is_together;
  }

  __device__ __forceinline__ void run(const Shares& shares, ItemWalk<kStreamRows> walk) {
    for (; walk.is_inside(); walk.next()) {
      const ItemPart part = walk.part();
      if (part.begin_row < part.end_row) begin_item(part);
      attend_item(part, shares, walk.is_last());
    }
  }
};

template <bool kIsF8>
__global__ void __launch_bounds__(kStreamThreads, 1)
    stream_kernel(const __grid_constant__ AbsorbedParams p) {
  using Layout = StreamLayout<kIsF8>;
  extern __shared__ __align__(128) char shared[];
  let_next_start();
  if (threadIdx.x == 0) {
    const uint32_t at = shared_address(shared);
#pragma unroll
    for (int stage = 0; stage < Layout::kStages; ++stage) {
      barrier_init(at + Layout::kFull + stage * 8, kProducerWarps);
      barrier_init(at + Layout::kEmpty + stage * 8, kThreads / 32);
    }
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      barrier_init(at + Layout::kScored + slot * 8, kThreads / 32);
      barrier_init(at + Layout::kWeighed + slot * 8, kSoftmaxWarps);
    }
    barriers_are_ready();
  }
  __syncthreads();
  wait_for_previous();
  const Shares shares = make_shares(p);
  const ItemWalk<kStreamRows> walk(p, shares, blockIdx.x);
  if (threadIdx.x < kThreads) {
    take_registers<kRegisters>();
    Consumer<kIsF8>{p, shared}.run(shares, walk);
  } else {
    give_registers<kHelperRegisters>();
    const int thread = static_cast<int>(threadIdx.x) - kThreads;
    if (thread < 32 * kProducerWarps) {
      produce<Layout>(p, walk, shared, thread / 32);
    } else {
      weigh<kIsF8>(p, walk, shared, thread - 32 * kProducerWarps);
    }
  }
}

}  // namespace

void start_stream(const AbsorbedParams& p, bool is_f8, ops::Stream& stream) {
  const auto start = [&](auto kernel, int shared_bytes) {
    launch(kernel,
           {.grid = static_cast<unsigned>(num_multiprocessors()),
            .block = kStreamThreads,
            .shared_bytes = shared_bytes},
           stream, p);
  };
  is_f8 ? start(stream_kernel<true>, StreamLayout<true>::kBytes)
        : start(stream_kernel<false>, StreamLayout<false>::kBytes);
}

}  // namespace fathom::cuda::absorbed
