// top_rows of many tokens, a block for each. The number of the topk-th best is found by its upper 11, middle 11 and
// lower 10 bits, and where rows of just this number are not all kept, the last one of them by the bits of its place.
// The first round reads all scores; the second pass over them makes a bit of each row that is surely kept and copies
// those that share the first bits of the threshold into shared memory, where all other rounds have them. Where they
// find no room, each round reads all scores. The list is made of the bits.
//
// Bound by instructions, some twenty of a score, while scores come from the L2 cache. As many blocks as find room hide
// each other's barriers. Grid: query tokens. Shared memory: 8 KB, a bit a row and 8 bytes for each candidate.

#include <algorithm>
#include <type_traits>

#include "cuda/device/reduce.cuh"
#include "cuda/indexer/top_rows.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kBins = 2048, kDigitBits = 11;
// A place counts down, so that of equal scores the first rows are the best.
constexpr int kPlaceBits = 2 * kDigitBits;
constexpr int kRankRounds = 3, kRounds = 5;
// Rows that are turned into bits together: four of each lane. More than a section's are done one section after the
// other, and have no candidates in shared memory.
constexpr int kStep = 128, kStepWords = kStep / 32;
constexpr int kSectionRows = 160 * 1024;
// A thread lists so many neighbours at a time.
constexpr int kUnit = 16, kStepUnits = kStep / kUnit;
constexpr int kThreadsAtOnce = 2048;
// Of the list, in shared memory, in the place of the counts.
constexpr int kListedRows = kBins;

struct TopShared {
  alignas(16) uint32_t counts[kBins];  // of rows by the bits of a round, then rows of the list
  uint32_t warp_sums[32];
  uint32_t bin, count, num_left;  // what a round found
  uint32_t num_candidates;
  // [section / 32] bits: word i of a step has rows i, 4 + i, 8 + i and so on. Then candidates.
  alignas(16) uint32_t kept[];
};

struct Candidate {
  uint32_t rank, row;
};

// What is kept: ranks above this one, and of its own those with at least this place.
struct Cut {
  uint32_t rank = 0, place = 0;

  __device__ __forceinline__ static uint32_t place_of(uint32_t row) {
    return (1u << kPlaceBits) - 1 - row;
  }
  __device__ __forceinline__ bool keeps(uint32_t of_rank, uint32_t row) const {
    return of_rank > rank || (of_rank == rank && place_of(row) >= place);
  }
};

// A token's rows, four neighbours at a time, those of several steps asked for together. kIsPlain: it sees all of them,
// and they lie on 16 bytes.
template <int kThreads, bool kIsPlain>
struct TokenRows {
  static constexpr int kBatch = 2;

  const float* scores;
  QueryPlace place;
  int count;

  // From the end on minus infinity: these rows' places are behind those of all others that have it.
  __device__ __forceinline__ float4 load(int row) const {
    const float none = -__int_as_float(0x7f800000);
    if constexpr (kIsPlain) {
      float4 v{none, none, none, none};
      if (row < count) v = *reinterpret_cast<const float4*>(scores + row);
      return v;
    } else {
      const auto at = [&](int i) { return i < count ? scores[i] : none; };
      return {at(row), at(row + 1), at(row + 2), at(row + 3)};
    }
  }
  __device__ __forceinline__ uint32_t rank_of(float score, int row) const {
    const uint32_t rank = score_rank(score);
    if constexpr (kIsPlain) return rank;
    return row >= count || place.sees(row) ? rank : 0;
  }
  __device__ __forceinline__ void take(const float4& v, int row, uint32_t (&ranks)[4]) const {
    ranks[0] = rank_of(v.x, row);
    ranks[1] = rank_of(v.y, row + 1);
    ranks[2] = rank_of(v.z, row + 2);
    ranks[3] = rank_of(v.w, row + 3);
    if (!kIsPlain || row + 4 <= count) return;
    const uint32_t none = score_rank(-__int_as_float(0x7f800000));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row + i >= count) ranks[i] = none;
    }
  }
  // visit(ranks, row) of each four from `begin` to beyond `end`; `row` is the lane's first one, and a warp's lie side
  // by side. A warp's lanes call it together.
  template <class Visit>
  __device__ __forceinline__ void visit_fours(int begin, int end, const Visit& visit) const {
    for (int warp_row = begin + static_cast<int>(threadIdx.x) / 32 * kStep; warp_row < end;
         warp_row += kBatch * 4 * kThreads) {
      const int row = warp_row + threadIdx.x % 32 * 4;
      float4 v[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) v[i] = load(row + i * 4 * kThreads);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (warp_row + i * 4 * kThreads >= end) break;
        uint32_t ranks[4];
        take(v[i], row + i * 4 * kThreads, ranks);
        visit(ranks, row + i * 4 * kThreads);
      }
    }
  }
  // visit(rank, row) of each, in any order.
  template <class Visit>
  __device__ __forceinline__ void visit_all(const Visit& visit) const {
    visit_fours(0, count, [&](const uint32_t(&ranks)[4], int row) {
#pragma unroll
      for (int i = 0; i < 4; ++i) visit(ranks[i], static_cast<uint32_t>(row + i));
    });
  }
};

// The bits of a round, of rows that agree with what is known.
struct Digit {
  int turn;
  Cut known;

  // Of the number that the round looks at.
  __device__ __forceinline__ int shift() const {
    return turn == 0 ? 21 : turn == 1 ? 10 : turn == 3 ? kDigitBits : 0;
  }
  __device__ __forceinline__ int width() const { return turn == 2 ? 10 : kDigitBits; }
  // Bits of a rank that are not known yet.
  __device__ __forceinline__ int open() const {
    return turn == 0 ? 32 : turn == 1 ? 21 : turn == 2 ? 10 : 0;
  }
  __device__ __forceinline__ bool agrees(uint32_t rank) const {
    return turn == 0 || (rank ^ known.rank) >> open() == 0;
  }
  __device__ __forceinline__ bool is_above(uint32_t rank) const {
    return rank >> open() > known.rank >> open();
  }
  __device__ __forceinline__ void count(uint32_t rank, uint32_t row, uint32_t* counts) const {
    if (turn < kRankRounds) {
      if (agrees(rank)) atomicAdd(&counts[rank >> shift() & ((1u << width()) - 1)], 1u);
      return;
    }
    const uint32_t place = Cut::place_of(row);
    if (rank == known.rank && (place ^ known.place) >> (shift() + width()) == 0)
      atomicAdd(&counts[place >> shift() & ((1u << width()) - 1)], 1u);
  }
  __device__ __forceinline__ void take(uint32_t bin) {
    (turn < kRankRounds ? known.rank : known.place) |= bin << shift();
  }
};

// Of the thread's and those above it in the block: [bins of kThreads]. Every thread calls it when all have counted;
// then counts are 0 again.
template <int kThreads>
__device__ __forceinline__ void find_bin(TopShared& shared, uint32_t num_left) {
  constexpr int kThreadBins = kBins / kThreads, kWarps = kThreads / 32;
  using Words = std::conditional_t<kThreadBins % 4 == 0, uint4, uint2>;
  constexpr int kVectors = kThreadBins * 4 / static_cast<int>(sizeof(Words));
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  alignas(16) uint32_t bins[kThreadBins];
  uint32_t mine = 0;
  auto* const vectors = reinterpret_cast<Words*>(shared.counts) + threadIdx.x * kVectors;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    reinterpret_cast<Words*>(bins)[i] = vectors[i];
    vectors[i] = {};
  }
#pragma unroll
  for (const uint32_t bin : bins) mine += bin;
  const uint32_t from_here = sum_from_lane(mine, lane);
  if (lane == 0) shared.warp_sums[warp] = from_here;
  __syncthreads();
  uint32_t above =
      from_here - mine +
      __reduce_add_sync(0xffffffffu, lane > warp && lane < kWarps ? shared.warp_sums[lane] : 0);
  if (above < num_left && num_left <= above + mine) {
#pragma unroll
    for (int i = kThreadBins - 1; i >= 0; --i) {
      if (above < num_left && num_left <= above + bins[i]) {
        shared.bin = threadIdx.x * kThreadBins + i;
        shared.count = bins[i];
        shared.num_left = num_left - above;
      }
      above += bins[i];
    }
  }
  __syncthreads();
}

// The rounds from `digit` on; visit_all(visit) visits those that may be the last one kept. Ends where all that agree
// with what is known are kept.
template <int kThreads, class VisitAll>
__device__ __forceinline__ Cut find_cut(Digit digit, uint32_t num_left, TopShared& shared,
                                        const VisitAll& visit_all) {
  for (; digit.turn < kRounds; ++digit.turn) {
    visit_all([&](uint32_t rank, uint32_t row) { digit.count(rank, row, shared.counts); });
    __syncthreads();  // all have counted
    find_bin<kThreads>(shared, num_left);
    digit.take(shared.bin);
    num_left = shared.num_left;
    if (shared.count == num_left) break;
  }
  return digit.known;
}

// Bits of the rows of a section by keeps(rank, row); each(ranks, row) of the lane's four.
template <class Rows, class Keeps, class Each>
__device__ __forceinline__ void write_bits(const Rows& part, int begin, int end, uint32_t* kept,
                                           const Keeps& keeps, const Each& each) {
  part.visit_fours(begin, end, [&](const uint32_t(&ranks)[4], int row) {
    uint32_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      bits[i] = __ballot_sync(0xffffffffu, keeps(ranks[i], static_cast<uint32_t>(row + i)));
    if (threadIdx.x % 32 == 0)
      *reinterpret_cast<uint4*>(kept + (row - begin) / 32) = {bits[0], bits[1], bits[2], bits[3]};
    each(ranks, row);
  });
}

__device__ __forceinline__ uint32_t spread(uint32_t four) {
  four = (four | four << 6) & 0x0303u;
  return (four | four << 3) & 0x1111u;
}
// Neighbours in the order of their rows.
__device__ __forceinline__ uint32_t unit_bits(const uint32_t* kept, int unit) {
  const uint4 step = reinterpret_cast<const uint4*>(kept)[unit / kStepUnits];
  const int shift = unit % kStepUnits * 4;
  return spread(step.x >> shift & 15) | spread(step.y >> shift & 15) << 1 |
         spread(step.z >> shift & 15) << 2 | spread(step.w >> shift & 15) << 3;
}

// Appends the rows of a section to the token's list, of which there are `listed`. Returns how many there are then.
template <int kThreads>
__device__ __forceinline__ uint32_t list_rows(const TopRowsParams& p, int sequence, int begin,
                                              int end, uint32_t listed, TopShared& shared,
                                              int32_t* rows) {
  constexpr int kWarps = kThreads / 32;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int units = (end - begin + kUnit - 1) / kUnit, each = (units + kThreads - 1) / kThreads;
  const int first = min(static_cast<int>(threadIdx.x) * each, units),
            last = min(first + each, units);
  uint32_t mine = 0;
  for (int unit = first; unit < last; ++unit) mine += __popc(unit_bits(shared.kept, unit));
  uint32_t to_here = mine;
#pragma unroll
  for (uint32_t lanes = 1; lanes < 32; lanes *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, to_here, lanes);
    if (lane >= lanes) to_here += other;
  }
  if (lane == 31) shared.warp_sums[warp] = to_here;
  __syncthreads();
  const uint32_t of_warp = lane < kWarps ? shared.warp_sums[lane] : 0;
  uint32_t at = listed + to_here - mine + __reduce_add_sync(0xffffffffu, lane < warp ? of_warp : 0);
  const int32_t* const table = p.queries.table(sequence);
  auto* const list = reinterpret_cast<int32_t*>(shared.counts);
  for (int unit = first; unit < last; ++unit) {
    for (uint32_t left = unit_bits(shared.kept, unit); left != 0; left &= left - 1, ++at) {
      const int row = begin + unit * kUnit + __ffs(static_cast<int>(left)) - 1;
      if (at < kListedRows) {
        list[at] = row;
      } else {
        rows[at] = flat_row(p.queries, table, row);
      }
    }
  }
  return listed + __reduce_add_sync(0xffffffffu, of_warp);
}

// Up to the step with the token's last row.
template <int kThreads>
__device__ __forceinline__ void store_bits(const uint32_t* kept, int begin, int end,
                                           uint32_t* bits) {
  const int words = (end - begin + kStep - 1) / kStep * kStepWords;
  for (int word = threadIdx.x; word < words; word += kThreads) {
    const int t = word % kStepWords;
    const uint2 two = *reinterpret_cast<const uint2*>(kept + word - t + t % 2 * 2);
    constexpr uint32_t kEven = 0x55555555u;
    bits[begin / 32 + word] =
        t < 2 ? (two.x & kEven) | (two.y & kEven) << 1 : (two.x >> 1 & kEven) | (two.y & ~kEven);
  }
}

// Of a token that keeps all that it sees.
template <int kThreads>
__device__ __forceinline__ void store_all_bits(const QueryPlace& place, uint32_t* bits) {
  const int words = (place.end() + kStep - 1) / kStep * kStepWords;
  for (int word = threadIdx.x; word < words; word += kThreads) {
    uint32_t seen = 0;
    for (int i = 0; i < 32; ++i) {
      const int row = word / kStepWords * kStep + i / 2 * 8 + word % kStepWords * 2 + i % 2;
      if (row < place.end() && place.sees(row)) seen |= 1u << i;
    }
    bits[word] = seen;
  }
}

template <int kThreads, bool kIsPlain>
__global__ void __launch_bounds__(kThreads, kThreadsAtOnce / kThreads)
    top_rows_of_many_kernel(const __grid_constant__ TopRowsParams p, uint32_t most_candidates) {
  extern __shared__ __align__(16) char shared_bytes[];
  auto& shared = *reinterpret_cast<TopShared*>(shared_bytes);
  let_next_start();
  for (int i = threadIdx.x; i < kBins; i += kThreads) shared.counts[i] = 0;
  if (threadIdx.x == 0) shared.num_candidates = 0;
  wait_for_previous();
  const int token = p.queries.token_begin + static_cast<int>(blockIdx.x);
  const QueryPlace place = place_of(p.queries, token);
  int32_t* const rows = p.rows + int64_t{token} * p.topk;
  uint32_t* const bits = p.bits == nullptr ? nullptr : p.bits + token * p.bits_stride;
  if (place.num_visible() <= p.topk) {
    if (bits != nullptr) return store_all_bits<kThreads>(place, bits);
    return keep_all(p, place, token, rows);
  }
  const TokenRows<kThreads, kIsPlain> part{
      .scores = p.scores + blockIdx.x * p.max_rows, .place = place, .count = place.end()};
  const auto visit_rows = [&](const auto& visit) { part.visit_all(visit); };
  __syncthreads();  // counts are 0
  // Rounds over all rows until what may be kept finds room, mostly one.
  Digit digit{.turn = 0, .known = {}};
  uint32_t num_left = static_cast<uint32_t>(p.topk), count;
  const uint32_t most = part.count <= kSectionRows ? most_candidates : 0;
  visit_rows([&](uint32_t rank, uint32_t row) { digit.count(rank, row, shared.counts); });
  while (true) {
    __syncthreads();  // all have counted
    find_bin<kThreads>(shared, num_left);
    digit.take(shared.bin);
    num_left = shared.num_left;
    count = shared.count;
    ++digit.turn;
    if (count == num_left || (count <= most && digit.turn <= kRankRounds)) break;
    visit_rows([&](uint32_t rank, uint32_t row) { digit.count(rank, row, shared.counts); });
  }
  const bool has_candidates = count != num_left;
  Cut cut = digit.known;
  if (has_candidates) {
    auto* const candidates =
        reinterpret_cast<Candidate*>(shared.kept + (part.count + kStep - 1) / kStep * kStepWords);
    write_bits(
        part, 0, part.count, shared.kept,
        [&](uint32_t rank, uint32_t) { return digit.is_above(rank); },
        [&](const uint32_t(&ranks)[4], int row) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (digit.agrees(ranks[i]))
              candidates[atomicAdd(&shared.num_candidates, 1u)] = {ranks[i],
                                                                   static_cast<uint32_t>(row + i)};
          }
        });
    __syncthreads();
    const auto visit_candidates = [&](const auto& visit) {
      for (uint32_t i = threadIdx.x; i < count; i += kThreads)
        visit(candidates[i].rank, candidates[i].row);
    };
    cut = find_cut<kThreads>(digit, num_left, shared, visit_candidates);
    visit_candidates([&](uint32_t rank, uint32_t row) {
      if (cut.keeps(rank, row))
        atomicOr(&shared.kept[row / kStep * kStepWords + row % 4], 1u << row % kStep / 4);
    });
  }
  uint32_t listed = 0;
  for (int begin = 0; begin < part.count; begin += kSectionRows) {
    const int end = min(begin + kSectionRows, part.count);
    if (!has_candidates)
      write_bits(
          part, begin, end, shared.kept,
          [&](uint32_t rank, uint32_t row) { return cut.keeps(rank, row); },
          [](const uint32_t(&)[4], int) {});
    __syncthreads();
    if (bits != nullptr) {
      store_bits<kThreads>(shared.kept, begin, end, bits);
    } else {
      listed = list_rows<kThreads>(p, place.sequence, begin, end, listed, shared, rows);
    }
    __syncthreads();
  }
  if (bits != nullptr) return;
  const int32_t* const table = p.queries.table(place.sequence);
  const auto* const list = reinterpret_cast<const int32_t*>(shared.counts);
  for (int i = threadIdx.x; i < min(kListedRows, p.topk); i += kThreads)
    rows[i] = p.queries.block_tables == nullptr ? list[i] : flat_row(p.queries, table, list[i]);
  if (threadIdx.x == 0) p.counts[token * p.counts_stride] = p.topk;
}

template <int kThreads>
void launch_many(const TopRowsParams& p, ops::Stream& stream) {
  const int64_t section = std::min<int64_t>((p.max_rows + kStep - 1) / kStep * kStep, kSectionRows);
  const auto candidates = static_cast<uint32_t>(std::clamp<int64_t>(section / 8, 1024, 8192));
  const bool is_plain = p.queries.tree_mask == nullptr && p.max_rows % 4 == 0 &&
                        reinterpret_cast<uintptr_t>(p.scores) % sizeof(float4) == 0;
  launch(
      is_plain ? top_rows_of_many_kernel<kThreads, true> : top_rows_of_many_kernel<kThreads, false>,
      {.grid = static_cast<unsigned>(p.queries.token_end - p.queries.token_begin),
       .block = kThreads,
       .shared_bytes =
           static_cast<int>(sizeof(TopShared) + section / 8 + candidates * sizeof(Candidate))},
      stream, p, candidates);
}

}  // namespace

void top_rows_of_many(const TopRowsParams& p, ops::Stream& stream) {
  FATHOM_CHECK(p.max_rows <= int64_t{1} << kPlaceBits, p.max_rows << " rows of a sequence");
  constexpr int64_t kFewRows = 8 * 1024, kManyRows = 64 * 1024;
  if (p.max_rows <= kFewRows) return launch_many<256>(p, stream);
  p.max_rows <= kManyRows ? launch_many<512>(p, stream) : launch_many<1024>(p, stream);
}

}  // namespace fathom::cuda
