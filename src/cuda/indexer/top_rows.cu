// top_rows: a cluster of one to eight blocks takes a query token; each block keeps its part of the row's scores in
// shared memory as whole numbers that rise with the rank, so they are read once. The number of the topk-th best is
// found by its upper 11, middle 11 and lower 10 bits, from counts that all blocks have; then each block writes its rows
// behind those of the blocks before it. Nothing but whole numbers is added, so bits depend on no order, and no list of
// candidates could overflow.
//
// Bound by latency at decode: a read of 4 bytes a row, three rounds of counts with a barrier of the cluster each.
// Prompts have enough tokens for one block each, which adds up no other's counts. Nor does the first block where a
// token sees few rows, which the device alone knows: it takes all of them, and the others leave. Rows longer than the
// cluster's shared memory are read again in each round.
//
// Grid: blocks of a cluster x query tokens. Shared memory: 33 KB and 4 bytes a row of the part.

#include <algorithm>

#include "cuda/indexer/ops.h"
#include "cuda/indexer/query_place.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kTopThreads = 1024, kTopWarps = kTopThreads / 32;
constexpr int kBins = 2048, kThreadBins = kBins / kTopThreads;
constexpr int kRounds = 3;
constexpr int kTopCluster = 8;
// Rows that a block keeps are looked up in the table by all threads, up to so many; more by the warp that finds them.
constexpr int kListedRows = 2048;
// Rows of a block's part that are kept in shared memory, and the most of a token that one block takes by itself.
constexpr int64_t kHeldRows = 48 * 1024, kRowsAlone = 8 * 1024;
static_assert(kThreadBins == 2);

struct TopRowsParams {
  const float* scores;  // [token_end - token_begin, max_rows]
  QueryTokens queries;
  int64_t max_rows;
  int32_t* rows;  // [tokens, topk]
  int32_t* counts;
  int64_t counts_stride;
  int topk;
  int rows_alone;  // that the first block of a cluster takes by itself
};

struct TopShared {
  uint32_t counts[kRounds]
                 [kBins];  // of this block's rows by the bits of a round, read by the others
  uint32_t warp_sums[kTopWarps];
  uint32_t bin, num_left;  // what a round found
  uint2 kept;              // rows of the block above the threshold, and at it; read by the others
  uint2 warp_kept[kTopWarps];
  alignas(16) int32_t rows[kListedRows];  // of the sequence that the block keeps, as many as fit
};

// Rises with the rank of a score: NaN above all, -0 as +0. 0 is none's.
__device__ __forceinline__ uint32_t score_rank(float score) {
  if (isnan(score)) return 0xffffffffu;
  const uint32_t bits = __float_as_uint(score == 0.0f ? 0.0f : score);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ int32_t flat_row(const QueryTokens& queries, const int32_t* table,
                                            int row) {
  const int block = row / queries.block_tokens;
  return table[block] * queries.block_tokens + row - block * queries.block_tokens;
}

// A token that keeps all rows that it sees.
__device__ __forceinline__ void keep_all(const TopRowsParams& p, const QueryPlace& place, int token,
                                         int32_t* rows) {
  const int32_t* const table = p.queries.table(place.sequence);
  const int count = place.num_visible();
  const int before = place.is_tree ? min(place.first_query_row, count) : count;
  for (int i = threadIdx.x; i < p.topk; i += kTopThreads)
    if (i < before || i >= count) rows[i] = i < before ? flat_row(p.queries, table, i) : -1;
  if (place.is_tree && static_cast<int>(threadIdx.x) < place.num_queries && place.kv_len > 0) {
    const uint64_t bit = uint64_t{1} << threadIdx.x;
    if ((place.mask & bit) != 0)
      rows[before + __popcll(place.mask & (bit - 1))] =
          flat_row(p.queries, table, place.first_query_row + static_cast<int>(threadIdx.x));
  }
  if (threadIdx.x == 0) p.counts[token * p.counts_stride] = count;
}

// A block's rows [begin, begin + count) of a token's.
template <bool kIsHeld>
struct RowPart {
  const float* scores;  // of the block's first row
  QueryPlace place;
  int begin, count;
  uint32_t* held;  // on 16 bytes
  int blocks;      // that share the token's rows: those of the cluster, or this one alone

  // Of the blocks that share the rows.
  __device__ __forceinline__ void sync() const {
    if (blocks > 1) {
      cluster_sync();
    } else {
      __syncthreads();
    }
  }
  __device__ __forceinline__ uint32_t rank_of(float score, int i) const {
    return place.sees(begin + i) ? score_rank(score) : 0;
  }
  __device__ __forceinline__ uint32_t rank(int i) const {
    if constexpr (kIsHeld) return held[i];
    return rank_of(scores[i], i);
  }
  // visit(rank) of each row, in any order. kLoads: from memory, and what is held is written.
  template <bool kLoads, class Visit>
  __device__ __forceinline__ void walk(const Visit& visit) const {
    const int vectors = reinterpret_cast<uintptr_t>(scores) % 16 == 0 ? count / 4 : 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < vectors; i += kTopThreads) {
      uint4 ranks;
      if constexpr (kLoads || !kIsHeld) {
        const float4 v = reinterpret_cast<const float4*>(scores)[i];
        ranks = {rank_of(v.x, 4 * i), rank_of(v.y, 4 * i + 1), rank_of(v.z, 4 * i + 2),
                 rank_of(v.w, 4 * i + 3)};
        if constexpr (kIsHeld) reinterpret_cast<uint4*>(held)[i] = ranks;
      } else {
        ranks = reinterpret_cast<const uint4*>(held)[i];
      }
      visit(ranks.x);
      visit(ranks.y);
      visit(ranks.z);
      visit(ranks.w);
    }
    for (int i = 4 * vectors + static_cast<int>(threadIdx.x); i < count; i += kTopThreads) {
      const uint32_t rank = kLoads ? rank_of(scores[i], i) : this->rank(i);
      if constexpr (kLoads && kIsHeld) held[i] = rank;
      visit(rank);
    }
  }
};

struct Threshold {
  uint32_t rank = 0;
  uint32_t num_equal = 0;  // rows of just this rank that are kept
};

// Adds the counts of a round of the blocks that share the rows, a power of two, and finds the bin of the num_left-th
// best; every thread of theirs calls it when all have counted.
__device__ __forceinline__ void find_bin(TopShared& shared, int round, int blocks,
                                         uint32_t num_left) {
  const uint32_t* const mine_of_round = shared.counts[round] + threadIdx.x * kThreadBins;
  uint32_t bins[kThreadBins] = {mine_of_round[0], mine_of_round[1]};
  const uint32_t address = shared_address(mine_of_round);
#pragma unroll
  for (uint32_t next = 1; next < kTopCluster; ++next) {
    if (next >= static_cast<uint32_t>(blocks)) break;
    const float2 theirs = load_remote2(address, (cluster_rank() + next) & (blocks - 1));
    bins[0] += __float_as_uint(theirs.x);
    bins[1] += __float_as_uint(theirs.y);
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t mine = bins[0] + bins[1];
  uint32_t from_here = mine;  // of this thread's bins and those above, in the warp
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const uint32_t other = __shfl_down_sync(0xffffffffu, from_here, lanes);
    if (lane + lanes < 32) from_here += other;
  }
  if (lane == 0) shared.warp_sums[warp] = from_here;
  __syncthreads();
  static_assert(kTopWarps == 32);
  const uint32_t above =
      from_here - mine + __reduce_add_sync(0xffffffffu, lane > warp ? shared.warp_sums[lane] : 0);
  if (above < num_left && num_left <= above + mine) {
    const bool is_upper = num_left <= above + bins[1];
    shared.bin = threadIdx.x * kThreadBins + (is_upper ? 1 : 0);
    shared.num_left = num_left - above - (is_upper ? 0 : bins[1]);
  }
  __syncthreads();
}

template <bool kIsHeld>
__device__ __forceinline__ Threshold find_threshold(const RowPart<kIsHeld>& part, uint32_t topk,
                                                    TopShared& shared) {
  Threshold found{.num_equal = topk};
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int shift = round == 0 ? 21 : round == 1 ? 10 : 0, width = round == 2 ? 10 : 11;
    const uint64_t above = uint64_t{found.rank} >> (shift + width);
    const auto count = [&](uint32_t rank) {
      if (uint64_t{rank} >> (shift + width) == above)
        atomicAdd(&shared.counts[round][(rank >> shift) & ((1u << width) - 1)], 1u);
    };
    round == 0 ? part.template walk<true>(count) : part.template walk<false>(count);
    part.sync();  // all have counted
    find_bin(shared, round, part.blocks, found.num_equal);
    found.rank |= shared.bin << shift;
    found.num_equal = shared.num_left;
  }
  return found;
}

// The rows of a warp, 32 at a time: visit(i, is_above, is_equal) in every lane.
template <bool kIsHeld, class Visit>
__device__ __forceinline__ void walk_warp(const RowPart<kIsHeld>& part, uint32_t threshold,
                                          const Visit& visit) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int each = ((part.count + kTopWarps - 1) / kTopWarps + 31) / 32 * 32;
  const int end = min((warp + 1) * each, part.count);
  for (int first = warp * each; first < end; first += 32) {
    const int i = first + lane;
    const uint32_t rank = i < end ? part.rank(i) : 0;
    visit(i, rank > threshold, rank == threshold);
  }
}

template <bool kIsHeld>
__device__ __forceinline__ void write_kept(const TopRowsParams& p, const RowPart<kIsHeld>& part,
                                           const Threshold& threshold, TopShared& shared,
                                           int32_t* rows) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t above = 0, equal = 0;
  walk_warp(part, threshold.rank, [&](int, bool is_above, bool is_equal) {
    above += __popc(__ballot_sync(0xffffffffu, is_above));
    equal += __popc(__ballot_sync(0xffffffffu, is_equal));
  });
  if (lane == 0) shared.warp_kept[warp] = {above, equal};
  __syncthreads();
  if (threadIdx.x == 0) {
    uint2 sum{};
    for (const uint2& kept : shared.warp_kept) sum = {sum.x + kept.x, sum.y + kept.y};
    shared.kept = sum;
  }
  part.sync();
  above = 0;
  equal = 0;
  for (uint32_t rank = 0; rank < cluster_rank();
       ++rank) {  // the first block, which may be alone, has none before it
    const float2 theirs = load_remote2(shared_address(&shared.kept), rank);
    above += __float_as_uint(theirs.x);
    equal += __float_as_uint(theirs.y);
  }
  if (part.blocks > 1) cluster_arrive();
  const uint32_t first_above = above, first_equal = equal;
  const uint32_t first_place = first_above + min(first_equal, threshold.num_equal);
  for (int other = 0; other < warp; ++other) {
    above += shared.warp_kept[other].x;
    equal += shared.warp_kept[other].y;
  }
  const int32_t* const table = p.queries.table(part.place.sequence);
  const uint32_t before = (1u << lane) - 1;
  const auto place_of_kept = [&](uint32_t above_before, uint32_t equal_before) {
    return above_before + min(equal_before, threshold.num_equal);
  };
  walk_warp(part, threshold.rank, [&](int i, bool is_above, bool is_equal) {
    const uint32_t aboves = __ballot_sync(0xffffffffu, is_above);
    const uint32_t equals = __ballot_sync(0xffffffffu, is_equal);
    const uint32_t equal_before = equal + __popc(equals & before);
    if (is_above || (is_equal && equal_before < threshold.num_equal)) {
      const uint32_t at = place_of_kept(above + __popc(aboves & before), equal_before);
      const uint32_t listed = at - first_place;
      if (listed < kListedRows) {
        shared.rows[listed] = part.begin + i;
      } else {
        rows[at] = flat_row(p.queries, table, part.begin + i);
      }
    }
    above += __popc(aboves);
    equal += __popc(equals);
  });
  __syncthreads();
  const uint32_t num_listed =
      min(static_cast<uint32_t>(kListedRows),
          place_of_kept(first_above + shared.kept.x, first_equal + shared.kept.y) - first_place);
  for (uint32_t i = threadIdx.x; i < num_listed; i += kTopThreads)
    rows[first_place + i] = flat_row(p.queries, table, shared.rows[i]);
  if (part.blocks > 1) cluster_wait();  // nobody reads this block's shared memory any more
}

template <bool kIsHeld>
__global__ void __launch_bounds__(kTopThreads)
    top_rows_kernel(const __grid_constant__ TopRowsParams p) {
  extern __shared__ __align__(16) char shared_bytes[];
  auto& shared = *reinterpret_cast<TopShared*>(shared_bytes);
  let_next_start();
  for (int i = threadIdx.x; i < kRounds * kBins; i += kTopThreads) (&shared.counts[0][0])[i] = 0;
  wait_for_previous();
  const int cluster = static_cast<int>(cluster_size()), rank = static_cast<int>(cluster_rank());
  const int in_range = static_cast<int>(blockIdx.x) / cluster;
  const int token = p.queries.token_begin + in_range;
  const QueryPlace place = place_of(p.queries, token);
  int32_t* const rows = p.rows + int64_t{token} * p.topk;
  if (place.num_visible() <= p.topk) {
    if (rank == 0) keep_all(p, place, token, rows);
    return;
  }
  const int blocks = place.end() <= p.rows_alone ? 1 : cluster;
  if (rank >= blocks) return;
  const int each = ((place.end() + blocks - 1) / blocks + 3) / 4 * 4;
  const int begin = min(rank * each, place.end());
  const RowPart<kIsHeld> part{.scores = p.scores + in_range * p.max_rows + begin,
                              .place = place,
                              .begin = begin,
                              .count = min(each, place.end() - begin),
                              .held = reinterpret_cast<uint32_t*>(shared_bytes + sizeof(TopShared)),
                              .blocks = blocks};
  __syncthreads();  // counts are 0
  const Threshold threshold = find_threshold(part, static_cast<uint32_t>(p.topk), shared);
  write_kept(p, part, threshold, shared, rows);
  if (rank == 0 && threadIdx.x == 0) p.counts[token * p.counts_stride] = p.topk;
}

// Blocks for a token: as many as find room at once, but for what one takes by itself, and as many as hold its rows.
int cluster_of(int64_t tokens, int64_t max_rows, int64_t topk) {
  if (max_rows <= std::max(kRowsAlone, topk)) return 1;
  int cluster = 1;
  while (cluster < kTopCluster &&
         ((2 * cluster * tokens <= num_multiprocessors() && cluster * kRowsAlone < max_rows) ||
          cluster * kHeldRows < max_rows))
    cluster *= 2;
  return cluster;
}

}  // namespace

void top_rows(const ops::TopRowsArgs& args, ops::Stream& stream) {
  const int64_t max_rows = args.queries.block_tables.dim(1) * args.block_tokens;
  const TopRowsParams p{.scores = args.scores.is_null() ? nullptr : args.scores.as<float>(),
                        .queries = query_tokens(args.queries, args.block_tokens),
                        .max_rows = max_rows,
                        .rows = args.rows.as<int32_t>(),
                        .counts = args.counts.as<int32_t>(),
                        .counts_stride = args.counts.stride(0),
                        .topk = static_cast<int>(args.topk()),
                        .rows_alone = static_cast<int>(std::min(kRowsAlone, max_rows))};
  const int cluster = cluster_of(args.queries.num_tokens(), max_rows, args.topk());
  const int64_t part = std::max((max_rows + cluster - 1) / cluster, int64_t{p.rows_alone});
  const bool is_held = part <= kHeldRows;
  launch(is_held ? top_rows_kernel<true> : top_rows_kernel<false>,
         {.grid = static_cast<unsigned>(args.queries.num_tokens() * cluster),
          .block = kTopThreads,
          .shared_bytes = int{sizeof(TopShared)} +
                          (is_held ? static_cast<int>(part + 3) / 4 * int{sizeof(uint4)} : 0),
          .cluster = cluster},
         stream, p);
}

}  // namespace fathom::cuda
