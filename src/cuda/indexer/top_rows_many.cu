// top_rows of many tokens, a block for each, which keeps its scores in shared memory as whole numbers that rise with
// the rank, so they are read once. The number of the topk-th best is found by its upper 11, middle 11 and lower 10
// bits. Rows longer than shared memory are read again in each round.
//
// Bound by latency: passes over shared memory by a block that has a multiprocessor for itself. However many scores
// share a count, it takes as long. Grid: query tokens. Shared memory: 33 KB and 4 bytes a row.

#include "cuda/device/reduce.cuh"
#include "cuda/indexer/top_rows.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kTopThreads = 1024, kTopWarps = kTopThreads / 32;
constexpr int kBins = 2048, kThreadBins = kBins / kTopThreads;
constexpr int kRounds = 3;
// Rows that a block keeps are looked up in the table by all threads, up to so many; more by the warp that finds them.
constexpr int kListedRows = 2048;
static_assert(kThreadBins == 2);

struct TopShared {
  uint32_t counts[kRounds][kBins];  // of rows by the bits of a round
  uint32_t warp_sums[kTopWarps];
  uint32_t bin, num_left;                 // what a round found
  uint2 warp_kept[kTopWarps];             // rows above the threshold, and at it
  alignas(16) int32_t rows[kListedRows];  // of the sequence that are kept, as many as fit
};

// A token's rows.
template <bool kIsHeld>
struct TokenRows {
  const float* scores;
  QueryPlace place;
  int count;
  uint32_t* held;  // on 16 bytes

  __device__ __forceinline__ uint32_t rank_of(float score, int i) const {
    return place.sees(i) ? score_rank(score) : 0;
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

// Finds the bin of the num_left-th best; every thread calls it when all have counted.
__device__ __forceinline__ void find_bin(TopShared& shared, int round, uint32_t num_left) {
  const uint32_t* const mine_of_round = shared.counts[round] + threadIdx.x * kThreadBins;
  const uint32_t bins[kThreadBins] = {mine_of_round[0], mine_of_round[1]};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t mine = bins[0] + bins[1];
  // Of this thread's bins and those above, in the warp.
  const uint32_t from_here = sum_from_lane(mine, static_cast<uint32_t>(lane));
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
__device__ __forceinline__ Threshold find_threshold(const TokenRows<kIsHeld>& part, uint32_t topk,
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
    __syncthreads();  // all have counted
    find_bin(shared, round, found.num_equal);
    found.rank |= shared.bin << shift;
    found.num_equal = shared.num_left;
  }
  return found;
}

// The rows of a warp, 32 at a time: visit(i, is_above, is_equal) in every lane.
template <bool kIsHeld, class Visit>
__device__ __forceinline__ void walk_warp(const TokenRows<kIsHeld>& part, uint32_t threshold,
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
__device__ __forceinline__ void write_kept(const TopRowsParams& p, const TokenRows<kIsHeld>& part,
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
  above = 0;
  equal = 0;
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
      if (at < kListedRows) {
        shared.rows[at] = i;
      } else {
        rows[at] = flat_row(p.queries, table, i);
      }
    }
    above += __popc(aboves);
    equal += __popc(equals);
  });
  __syncthreads();
  for (int i = threadIdx.x; i < min(kListedRows, p.topk); i += kTopThreads)
    rows[i] = flat_row(p.queries, table, shared.rows[i]);
}

template <bool kIsHeld>
__global__ void __launch_bounds__(kTopThreads)
    top_rows_of_many_kernel(const __grid_constant__ TopRowsParams p) {
  extern __shared__ __align__(16) char shared_bytes[];
  auto& shared = *reinterpret_cast<TopShared*>(shared_bytes);
  let_next_start();
  for (int i = threadIdx.x; i < kRounds * kBins; i += kTopThreads) (&shared.counts[0][0])[i] = 0;
  wait_for_previous();
  const int token = p.queries.token_begin + static_cast<int>(blockIdx.x);
  const QueryPlace place = place_of(p.queries, token);
  int32_t* const rows = p.rows + int64_t{token} * p.topk;
  if (place.num_visible() <= p.topk) return keep_all(p, place, token, rows);
  const TokenRows<kIsHeld> part{
      .scores = p.scores + blockIdx.x * p.max_rows,
      .place = place,
      .count = place.end(),
      .held = reinterpret_cast<uint32_t*>(shared_bytes + sizeof(TopShared))};
  __syncthreads();  // counts are 0
  const Threshold threshold = find_threshold(part, static_cast<uint32_t>(p.topk), shared);
  write_kept(p, part, threshold, shared, rows);
  if (threadIdx.x == 0) p.counts[token * p.counts_stride] = p.topk;
}

}  // namespace

void top_rows_of_many(const TopRowsParams& p, ops::Stream& stream) {
  const bool is_held = p.max_rows <= kHeldByOne;
  launch(
      is_held ? top_rows_of_many_kernel<true> : top_rows_of_many_kernel<false>,
      {.grid = static_cast<unsigned>(p.queries.token_end - p.queries.token_begin),
       .block = kTopThreads,
       .shared_bytes = int{sizeof(TopShared)} +
                       (is_held ? static_cast<int>(p.max_rows + 3) / 4 * int{sizeof(uint4)} : 0)},
      stream, p);
}

}  // namespace fathom::cuda
