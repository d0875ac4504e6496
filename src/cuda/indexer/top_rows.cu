// top_rows: the blocks of a cluster hold all rows of a token in registers, as whole numbers that rise with the rank,
// and find the number of the topk-th best byte by byte (row_choice.cuh). For each byte a block counts its rows by it
// and gives the counts to all blocks. Then blocks tell each other how many rows they keep, and each writes its own
// behind those of the blocks before it. Nothing but whole numbers is added, so bits depend on no order, and no list of
// candidates could overflow.
//
// Bound by latency: a read of the lengths, one of the scores, then for each byte an exchange. Where a token sees few
// rows, which the device alone knows, the first block has all of them and exchanges nothing. The search ends where all
// rows of a byte's value are kept, mostly after two or three bytes.
//
// Grid: blocks of a cluster x query tokens. Shared memory: 37 KB.

#include <algorithm>
#include <bit>

#include "cuda/indexer/ops.h"
#include "cuda/indexer/row_choice.cuh"
#include "cuda/indexer/top_rows.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

// Rows that a block holds: a thread has four neighbours of each slab. 16 blocks hold 163,840, the longest context of
// the published model.
constexpr int kSlabs = 5, kSlab = 4 * kChoiceThreads, kHeldByBlock = kSlabs * kSlab;
// On a multiprocessor.
constexpr int kBlocksAtOnce = 2;
// The most of a token that one block takes by itself, and a block's share where there are multiprocessors enough.
constexpr int64_t kRowsAlone = 8 * 1024, kRowsOfBlock = 4 * 1024;
// Beyond so many, clusters of a few dozen tokens are faster than blocks even where not all run at once.
constexpr int64_t kRowsOfMany = 48 * 1024;

// Slabs of which the numbers of kept rows share a word.
constexpr int kSlabsOfWord = 2, kKeptWords = (kSlabs + 1) / kSlabsOfWord;

struct TopShared {
  ChoiceShared choice;
  uint32_t warp_kept[kKeptWords][kChoiceWarps];
};

// The number of rows above a threshold in the lower half of a word, that of rows at it in the upper half.
struct Kept {
  uint32_t both = 0;
  __device__ __forceinline__ uint32_t above() const { return both & 0xffffu; }
  __device__ __forceinline__ uint32_t equal() const { return both >> 16; }
};
static_assert(kHeldByBlock < 1 << 16);

// Rows [begin, end) of a token's, a block's part. Four neighbours lie in one block of the cache, whose size is a power
// of two, and their scores are read at once.
struct HeldRows {
  float4 scores[kSlabs];
  uint32_t rank[kSlabs][4];  // 0: nobody sees it
  int32_t block[kSlabs];     // of the cache
  int begin = 0, end = 0;

  // The thread's first row of a slab.
  __device__ __forceinline__ int first(int slab) const {
    return begin + slab * kSlab + static_cast<int>(threadIdx.x) * 4;
  }
  __device__ __forceinline__ bool has(int slab) const { return begin + slab * kSlab < end; }

  // For scores of rows from begin on, of which there are `limit`.
  __device__ __forceinline__ void ask(const float* of_token, int limit) {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
      if (first(slab) < limit)
        scores[slab] = *reinterpret_cast<const float4*>(of_token + first(slab));
  }

  // What was asked for.
  __device__ __forceinline__ void take(const TopRowsParams& p, const QueryPlace& place) {
    const int32_t* const table = p.queries.table(place.sequence);
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      if (!has(slab)) break;
      block[slab] = p.queries.block_at(table, min(first(slab), end - 1) >> p.block_shift);
    }
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      if (!has(slab)) break;
      const int row = first(slab);
      const float of_rows[4] = {scores[slab].x, scores[slab].y, scores[slab].z, scores[slab].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) rank[slab][i] = row + i < end ? score_rank(of_rows[i]) : 0;
    }
    if (place.is_tree) hide(place);
  }

  // What the token does not see of its tree.
  __device__ __forceinline__ void hide(const QueryPlace& place) {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first(slab) + i;
        if (has(slab) && row < end && !place.sees(row)) rank[slab][i] = 0;
      }
    }
  }

  // The rows that share the known bits of a rank, by their next byte.
  __device__ __forceinline__ void count(uint32_t of_rank, uint32_t known, int shift,
                                        uint32_t* counts) const {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      if (!has(slab)) break;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        count_where(((rank[slab][i] ^ of_rank) & known) == 0,
                    counts + (rank[slab][i] >> shift & 0xffu));
    }
  }

  // Of all rows; before: of each slab, those in front of the thread's own. Every thread of the block calls it.
  __device__ __forceinline__ Kept find_kept(const Threshold& threshold, TopShared& shared,
                                            Kept (&before)[kSlabs]) const {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Above and equal of two slabs in the bytes of a word: a warp has 128 of each at most.
    uint32_t words[kKeptWords];
#pragma unroll
    for (int word = 0; word < kKeptWords; ++word) {
      if (!has(word * kSlabsOfWord)) break;
      uint32_t mine = 0;
#pragma unroll
      for (int slab = word * kSlabsOfWord; slab < min((word + 1) * kSlabsOfWord, kSlabs); ++slab) {
        if (!has(slab)) break;
        const uint32_t unit = 1u << slab % kSlabsOfWord * 16;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          mine += rank[slab][i] > threshold.rank    ? unit
                  : rank[slab][i] == threshold.rank ? unit << 8
                                                    : 0;
      }
      uint32_t to_here = mine;
#pragma unroll
      for (uint32_t lanes = 1; lanes < 32; lanes *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, to_here, lanes);
        if (lane >= lanes) to_here += other;
      }
      words[word] = to_here - mine;
      if (lane == 31) shared.warp_kept[word][warp] = to_here;
    }
    __syncthreads();
    const auto of_slab = [](uint32_t word, int slab) {
      const uint32_t bytes = word >> slab % kSlabsOfWord * 16;
      return (bytes & 0xffu) | (bytes & 0xff00u) << 8;
    };
    uint32_t all = 0;
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      if (!has(slab)) break;
      const int word = slab / kSlabsOfWord;
      const uint32_t of_warp =
          lane < kChoiceWarps ? of_slab(shared.warp_kept[word][lane], slab) : 0;
      before[slab].both = all + of_slab(words[word], slab) +
                          __reduce_add_sync(0xffffffffu, lane < warp ? of_warp : 0);
      all += __reduce_add_sync(0xffffffffu, of_warp);
    }
    return {all};
  }

  // above, equal: of the token's rows in front of these.
  __device__ __forceinline__ void write(int block_shift, const Threshold& threshold,
                                        const Kept (&before)[kSlabs], uint32_t above,
                                        uint32_t equal, int32_t* rows) const {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      if (!has(slab)) break;
      const int32_t flat = (block[slab] << block_shift) + (first(slab) & ((1 << block_shift) - 1));
      uint32_t above_before = above + before[slab].above(),
               equal_before = equal + before[slab].equal();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool is_above = rank[slab][i] > threshold.rank,
                   is_equal = rank[slab][i] == threshold.rank;
        if (is_above || (is_equal && equal_before < threshold.num_equal))
          rows[above_before + min(equal_before, threshold.num_equal)] = flat + i;
        above_before += is_above ? 1 : 0;
        equal_before += is_equal ? 1 : 0;
      }
    }
  }
};

__device__ __forceinline__ Threshold find_threshold(const HeldRows& held, uint32_t topk,
                                                    const Choosers& choosers) {
  Threshold found{.num_equal = topk};
  uint32_t known = 0;  // bits
#pragma unroll 1
  for (int digit = 0; digit < kDigits; ++digit) {
    const int shift = 24 - 8 * digit;
    held.count(found.rank, known, shift, choosers.shared.counts[digit]);
    const FoundByte byte = choosers.find(digit, found.num_equal);
    found.rank |= byte.value << shift;
    found.num_equal = byte.left;
    known |= 0xffu << shift;
    if (byte.count == byte.left) return {found.rank - 1, 0};  // all that share the bits so far
  }
  return found;
}

__global__ void __launch_bounds__(kChoiceThreads)
    top_rows_kernel(const __grid_constant__ TopRowsParams p) {
  __shared__ TopShared shared;
  if (threadIdx.x == 0) shared.choice.init_barriers();
  __syncwarp();
  cluster_arrive();
  let_next_start();
  for (int i = threadIdx.x; i < kDigits * kBins; i += kChoiceThreads)
    (&shared.choice.counts[0][0])[i] = 0;
  const int cluster = static_cast<int>(cluster_size()), rank = static_cast<int>(cluster_rank());
  const int in_range = static_cast<int>(blockIdx.x) / cluster;
  const int token = p.queries.token_begin + in_range;
  const float* const scores = p.scores + in_range * p.max_rows;
  // The first block begins with the first row however many there are: it need not wait for lengths.
  HeldRows held;
  QueryPlace place;
  if (p.queries.settled) place = place_of(p.queries, token);
  wait_for_previous();
  if (rank == 0) held.ask(scores, static_cast<int>(p.max_rows));
  if (!p.queries.settled) place = place_of(p.queries, token);
  int32_t* const rows = p.rows + int64_t{token} * p.topk;
  if (place.num_visible() <= p.topk) {
    if (rank == 0) keep_all(p, place, token, rows);
    return;
  }
  const int blocks = place.end() <= kRowsAlone ? 1 : cluster;
  if (rank >= blocks) return;
  const int each = (place.end() + 4 * blocks - 1) / (4 * blocks) * 4;
  held.begin = min(rank * each, place.end());
  held.end = min((rank + 1) * each, place.end());
  if (rank != 0) held.ask(scores, held.end);
  held.take(p, place);
  const Choosers choosers{shared.choice, static_cast<uint32_t>(blocks)};
  if (blocks > 1) {
    choosers.begin();
    cluster_wait();
  }
  __syncthreads();  // counts are 0
  const Threshold threshold = find_threshold(held, static_cast<uint32_t>(p.topk), choosers);
  Kept before[kSlabs];
  const Kept kept = held.find_kept(threshold, shared, before);
  const uint2 others = choosers.kept_before(kept.above(), kept.equal());
  held.write(p.block_shift, threshold, before, others.x, others.y, rows);
  if (rank == 0 && threadIdx.x == 0) p.counts[token * p.counts_stride] = p.topk;
}

// Blocks for a token: as many as hold its rows, and more while all find room at once.
int cluster_of(int64_t tokens, int64_t max_rows) {
  if (max_rows <= kRowsAlone) return 1;
  int cluster = 1;
  while (cluster < kMostChoosers &&
         ((2 * cluster * tokens <= num_multiprocessors() && cluster * kRowsOfBlock < max_rows) ||
          cluster * kHeldByBlock < max_rows))
    cluster *= 2;
  return cluster;
}

}  // namespace

void top_rows(const ops::TopRowsArgs& args, ops::Stream& stream) {
  const int64_t max_rows = args.queries.block_tables.dim(1) * args.block_tokens;
  const int64_t tokens = args.queries.num_tokens();
  const auto block_tokens = static_cast<uint64_t>(args.block_tokens);
  TopRowsParams p{
      .scores = args.scores.is_null() ? nullptr : args.scores.as<float>(),
      .queries = query_tokens(args.queries, args.block_tokens),
      .max_rows = args.scores.is_null() ? 0 : max_rows,
      .rows = args.rows.as<int32_t>(),
      .counts = args.counts.as<int32_t>(),
      .counts_stride = args.counts.stride(0),
      .topk = static_cast<int>(args.topk()),
      .block_shift = std::countr_zero(block_tokens),
      .bits = args.kept.is_null() ? nullptr : reinterpret_cast<uint32_t*>(args.kept.as<int32_t>()),
      .bits_stride = args.kept.is_null() ? 0 : args.kept.stride(0)};
  if (args.of_sequence) p.queries.block_tables = nullptr;
  const int cluster = cluster_of(tokens, max_rows);
  const bool can_hold = max_rows <= int64_t{cluster} * kHeldByBlock &&
                        std::has_single_bit(block_tokens) && block_tokens >= 4 &&
                        reinterpret_cast<uintptr_t>(p.scores) % 16 == 0;
  // With more blocks than run at once, one of each token is better, of the longest rows where there are many of them.
  const bool are_many = tokens * cluster > kBlocksAtOnce * num_multiprocessors() &&
                        (max_rows <= kRowsOfMany || 2 * tokens > num_multiprocessors());
  if (!can_hold || are_many || p.bits != nullptr) return top_rows_of_many(p, stream);
  launch(top_rows_kernel,
         {.grid = static_cast<unsigned>(tokens * cluster),
          .block = kChoiceThreads,
          .cluster = cluster},
         stream, p);
}

}  // namespace fathom::cuda
