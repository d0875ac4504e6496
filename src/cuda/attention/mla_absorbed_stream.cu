// Absorbed attention for many items of 16 query rows, or for long ones: one block on each multiprocessor, through which
// its share of all cache rows streams. Sums and bits are those of mla_absorbed.cu; see there for tiles and splits.
//
// Four producer warps have the copy engine fill stages with tiles of 32 rows, from one item into the next, so that
// copies are under way while the other eight warps merge, write and load queries. Splits of a chunk are merged as they
// come, chunks of an item through scratch. Of an item that several blocks share each unit leaves a node in scratch;
// the block that comes last merges them, or all of them do (absorbed_combine.cuh).
//
// Bound by memory: 1152 (656) bytes of a cache row. Grid: multiprocessors. Shared memory: 200 (209) KB.

#include "cuda/attention/absorbed_combine.cuh"
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

constexpr int kProducerWarps = 4;  // registers move between whole warpgroups
constexpr int kProducerRegisters = 40, kRegisters = 232;
constexpr int kStreamThreads = kThreads + kProducerWarps * 32;

template <bool kIsF8>
struct StreamLayout {
  static constexpr int kRows = kStreamRows;
  static constexpr int kStages = 4;
  static constexpr int kSourceRowBytes = kIsF8 ? kF8RowBytes : kDim * 2;
  static constexpr int kStageRowBytes = kIsF8 ? kF8RowBytes : kRowBytes;
  static constexpr int kStageBytes = kTileRows * kStageRowBytes;
  static constexpr int kScoreStride = 40;
  static constexpr int kScoreBytes = 4 * kRows * kScoreStride * 4;

  static constexpr int kTiles = kStages * kStageBytes;  // two tiles of f8 rows: as bf16
  static constexpr int kScores = kTiles + (kIsF8 ? 2 * kTileBytes : 0);  // of two tiles
  static constexpr int kPair = kScores + 2 * kScoreBytes;                // SplitTree's
  static constexpr int kQuery = kPair;  // until a warp has its own in registers
  static constexpr int kWeights = kPair + kRows * kLatent * 4;
  static constexpr int kStats = kWeights + kRows * kWeightStride * 2;
  static constexpr int kFactors = kStats + kRows * 8;
  static constexpr int kFull = kFactors + kRows * 4;  // barriers: a stage holds its tile
  static constexpr int kEmpty = kFull + kStages * 8;  // its tile is done with
  static constexpr int kFlag = kEmpty + kStages * 8;
  static constexpr int kBytes = kFlag + 16;
  static_assert(kTiles % 16 == 0 && kPair % 16 == 0 && kScores % 16 == 0 && kFull % 8 == 0);
  static_assert(kRows * kRowBytes <= kRows * kLatent * 4);
  static_assert(kBytes <= 227 * 1024);
};

// A tile's number among all of this block's, as both roles count them: its stage and which use of it that is.
template <class Layout>
struct StageTurn {
  int tile = 0;

  __device__ __forceinline__ int stage() const { return tile % Layout::kStages; }
  __device__ __forceinline__ uint32_t phase() const { return tile / Layout::kStages & 1; }
  __device__ __forceinline__ uint32_t full(uint32_t shared) const {
    return shared + Layout::kFull + stage() * 8;
  }
  __device__ __forceinline__ uint32_t empty(uint32_t shared) const {
    return shared + Layout::kEmpty + stage() * 8;
  }
};

// Four warps, a quarter of a tile's rows each. Rows behind the end are left as they are: weights of 0 and
// clear_non_finite() keep them out.
template <class Layout>
__device__ __forceinline__ void produce(const AbsorbedParams& p, ItemWalk<kStreamRows> walk,
                                        uint32_t shared) {
  constexpr int kWarpRows = kTileRows / kProducerWarps;
  const int lane = threadIdx.x % 32, first = (threadIdx.x - kThreads) / 32 * kWarpRows;
  StageTurn<Layout> turn;
  for (; walk.is_inside(); walk.next()) {
    const ItemPart part = walk.part();
    const auto kv_row_of = [&](int row) {
      return lane < kWarpRows && row < part.end_row ? kv_row_at(p, part.group.seq, row) : -1;
    };
    int32_t kv_row = kv_row_of(part.begin_row + first + lane);
    for (int row = part.begin_row; row < part.end_row; row += kTileRows, ++turn.tile) {
      const int32_t next_kv_row = kv_row_of(row + kTileRows + first + lane);
      barrier_wait(turn.empty(shared), turn.phase() ^ 1);
      if (lane == 0)
        barrier_expect(turn.full(shared), max(0, min(kWarpRows, part.end_row - row - first)) *
                                              Layout::kSourceRowBytes);
      __syncwarp();
      if (kv_row >= 0)
        copy_row(
            shared + turn.stage() * Layout::kStageBytes + (first + lane) * Layout::kStageRowBytes,
            p.cache.data + int64_t{kv_row} * Layout::kSourceRowBytes, Layout::kSourceRowBytes,
            turn.full(shared));
      kv_row = next_kv_row;
    }
  }
}

// The eight warps that compute.
template <bool kIsF8>
struct Consumer {
  using Layout = StreamLayout<kIsF8>;

  const AbsorbedParams& p;
  char* const shared;
  StageTurn<Layout> turn{};
  Queries<1> queries{};
  RowSoftmax<1, Layout> softmax{};

  __device__ __forceinline__ char* stage(const StageTurn<Layout>& of) const {
    return shared + of.stage() * Layout::kStageBytes;
  }
  // A tile's rows in bf16.
  __device__ __forceinline__ char* keys(const StageTurn<Layout>& of) const {
    return kIsF8 ? shared + Layout::kTiles + of.tile % 2 * kTileBytes : stage(of);
  }
  __device__ __forceinline__ float* scores(const StageTurn<Layout>& of) const {
    return reinterpret_cast<float*>(shared + Layout::kScores + of.tile % 2 * Layout::kScoreBytes);
  }
  __device__ __forceinline__ void wait_full(const StageTurn<Layout>& of) const {
    barrier_wait(of.full(shared_address(shared)), of.phase());
  }
  __device__ __forceinline__ void release(const StageTurn<Layout>& of) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(of.empty(shared_address(shared)));
  }
  __device__ __forceinline__ void convert(const StageTurn<Layout>& of) const {
    wait_full(of);
    dequantise_tile(stage(of), keys(of));
    release(of);
  }
  __device__ __forceinline__ void score(const StageTurn<Layout>& of) const {
    if constexpr (!kIsF8) wait_full(of);
    score_tile<1, Layout>(queries, shared_address(keys(of)), scores(of));
  }

  // Loads queries and computes the first tile's scores.
  __device__ __forceinline__ void begin_item(const QueryGroup& group) {
    meet();  // nobody needs what lies in the place of queries
    load_queries<Layout>(p, group, shared);
    commit_copies();
    softmax.init(p, group);
    if constexpr (kIsF8) convert(turn);
    wait_copies<0>();
    meet();
    queries.init(shared + Layout::kQuery, threadIdx.x / 64);
    score(turn);
  }

  __device__ __forceinline__ void weigh(const QueryGroup& group, int row, bool ends_split) {
    softmax.step(group, p.scale, row, scores(turn),
                 reinterpret_cast<Bf16*>(shared + Layout::kWeights),
                 reinterpret_cast<float*>(shared + Layout::kFactors));
    if (ends_split && threadIdx.x % softmax.kRowThreads == 0)
      reinterpret_cast<float2*>(shared + Layout::kStats)[softmax.row()] = {softmax.max,
                                                                           softmax.sum};
    if (row + kTileRows > group.first_partial_row()) {
      clear_non_finite(keys(turn), max(0, group.first_partial_row() - row));
      publish_to_products();  // and to the copy engine, which writes here next
    }
  }

  // Adds the tile whose scores are there or on their way to `values`, scaled by what the softmax says, and computes
  // the next one's. Softmax waits for its own results most of the time, so half of the warps begin with it and the
  // other half with the next tile.
  __device__ __forceinline__ void add_tile(const QueryGroup& group, int row, bool ends_split,
                                           bool has_next, float (&values)[1][8][4]) {
    const StageTurn<Layout> next{turn.tile + 1};
    const int when = threadIdx.x / 128;
    meet();
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      if (i == when) {
        weigh(group, row, ends_split);
      } else if (has_next) {
        kIsF8 ? convert(next) : score(next);
      }
    }
    meet();
    add_values<1>(shared_address(keys(turn)), reinterpret_cast<Bf16*>(shared + Layout::kWeights),
                  reinterpret_cast<float*>(shared + Layout::kFactors), values);
    if constexpr (!kIsF8) release(turn);
    turn = next;
    if (kIsF8 && has_next) score(turn);
  }

  // Rows [begin, end), if any, of an item whose rows that this block has end at part_end.
  __device__ __forceinline__ void attend_split(const QueryGroup& group, int begin, int end,
                                               int part_end, Node& node) {
    node.clear();
    if (begin >= end) return;
    softmax.max = minus_infinity();
    softmax.sum = 0.0f;
#pragma unroll 1
    for (int row = begin; row < end; row += kTileRows)
      add_tile(group, row, row + kTileRows >= end, row + kTileRows < part_end, node.values);
    const auto* const stats = reinterpret_cast<const float2*>(shared + Layout::kStats);
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
        if (ends_item) return write_item(p, part.group, node);
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
      combine_item(p, part, shares, blocks, tickets, flag, shared + Layout::kPair);
    leave(tickets, blocks);
    return are_all && !is_together;
  }

  __device__ __forceinline__ void run(const Shares& shares, ItemWalk<kStreamRows> walk) {
    for (; walk.is_inside(); walk.next()) {
      const ItemPart part = walk.part();
      if (part.begin_row < part.end_row) begin_item(part.group);
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
    barriers_are_ready();
  }
  __syncthreads();
  wait_for_previous();
  const Shares shares = make_shares(p);
  const ItemWalk<kStreamRows> walk(p, shares, blockIdx.x);
  if (threadIdx.x >= kThreads) {
    give_registers<kProducerRegisters>();
    produce<Layout>(p, walk, shared_address(shared));
  } else {
    take_registers<kRegisters>();
    Consumer<kIsF8>{p, shared}.run(shares, walk);
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
