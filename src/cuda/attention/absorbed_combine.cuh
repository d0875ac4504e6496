#pragma once
// How the blocks that share a long item add up the sums of its units together: the fix-up of stream-K, done by all of
// an item's blocks instead of by the last one.
//
//   SharedNodes::store(p, unit, node);                               // each unit of this block
//   if (arrive(item, blocks, may_wait, flag)) combine_item<kIsF8>(p, part, unit_shift, blocks, item, flag, shared);
//
// Every block takes pieces of the columns until none is left. Units of a chunk are added by pairs, pairs of pairs, and
// those two, chunks one by one in order of their rows, so the bits are those of a block that adds up alone.
//
// A block that has nothing else to do waits for the others, but not for long: where two kernels share the GPU each may
// hold what the other one's blocks wait for. Whoever comes last never waits and takes whatever pieces are left, so all
// are taken. Internal to cuda/attention/.

#include "cuda/attention/absorbed_node.cuh"
#include "cuda/attention/absorbed_shares.cuh"

namespace fathom::cuda::absorbed {

// Counters of an item that several blocks share.
struct ItemCounters {
  uint32_t* arrived;  // blocks: zero between calls
  uint32_t* taken;    // pieces, once all blocks have arrived: in scratch

  // Of the item that begins in block `first`. A block shares at most one of the items that it begins.
  __device__ __forceinline__ static ItemCounters of(const AbsorbedParams& p, int first) {
    auto* const taken = reinterpret_cast<uint32_t*>(p.stats + int64_t{p.max_nodes} * kStreamRows);
    return {p.tickets + first, taken + first};
  }
};

// Items of no more blocks are added up by the last one alone: the others have long gone on to their next item.
inline constexpr int kFewSharers = 3;
inline constexpr int64_t kMostWaitCycles = 100'000;  // some 55 us
// Of a thread, whose loads are under way together.
inline constexpr int kRoundUnits = 8, kRoundChunks = 4;

// The warps that compute wait for each other; others do not take part.
__device__ __forceinline__ void meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

__device__ __forceinline__ uint32_t load_acquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// Whether all blocks of the item have stored their nodes. All threads that compute, of each block once. What orders the
// nodes is a fence of one thread, behind and before a barrier of all.
__device__ __forceinline__ bool arrive(const ItemCounters& item, int blocks, bool may_wait,
                                       uint32_t* flag) {
  __syncwarp();
  meet();
  if (threadIdx.x == 0) {
    *item.taken = 0;
    __threadfence();
    const auto last = static_cast<uint32_t>(blocks) - 1;
    bool are_all = atomicInc(item.arrived, last) == last;  // zero again
    if (are_all) __threadfence();
    const int64_t begin = clock64();
    while (may_wait && !are_all && clock64() - begin < kMostWaitCycles)
      are_all = load_acquire(item.arrived) == 0;
    *flag = are_all ? 1 : 0;
  }
  __syncwarp();
  meet();
  return *flag != 0;
}

// A float4 of a node: two columns of each of two query rows.
struct NodeVector {
  Merged rows[2] = {Merged::none(), Merged::none()};
  float4 values = {0.0f, 0.0f, 0.0f, 0.0f};

  __device__ __forceinline__ void add(const NodeVector& next) {
    const MergeFactors f[2] = {rows[0].add(next.rows[0].max, next.rows[0].sum),
                               rows[1].add(next.rows[1].max, next.rows[1].sum)};
    values.x = merge(values.x, f[0], next.values.x);
    values.y = merge(values.y, f[0], next.values.y);
    values.z = merge(values.z, f[1], next.values.z);
    values.w = merge(values.w, f[1], next.values.w);
  }
  // Vector `index` of what put_values() wrote.
  __device__ __forceinline__ static NodeVector load(const AbsorbedParams& p, int unit, int index) {
    const float2* const stats = p.stats + int64_t{unit} * kStreamRows + index % 32 / 4;
    const float2 low = __ldcg(stats), high = __ldcg(stats + kStreamRows / 2);
    return {{{low.x, low.y}, {high.x, high.y}}, __ldcg(SharedNodes::values(p, unit) + index)};
  }
};

// Columns of an item that a block adds up at a time: `vectors` float4s of its nodes, and so many chunks side by side
// that all threads have one. The more blocks there are, the fewer columns.
struct PieceShape {
  int vectors;

  __device__ __forceinline__ static PieceShape of(int blocks) {
    return {blocks >= 96 ? 16 : blocks >= 64 ? 32 : blocks >= 32 ? 64 : blocks >= 16 ? 128 : 256};
  }
  __device__ __forceinline__ int num_pieces() const { return 8 * kThreads / vectors; }
};

// What a round of chunks lies in, in shared memory: chunk by chunk, what is added to the sum so far, and by what that
// is multiplied before. All that depends on one chunk alone is computed side by side, so that a chunk is a
// multiplication and an addition for whoever adds them up one behind the other.
struct Round {
  static constexpr int kPairs = kStreamRows / 2;  // of query rows g and g + 8
  static constexpr int kMostChunks = kRoundChunks * kThreads / 16;
  static constexpr int kTermBytes = kRoundChunks * kThreads * 16;

  float4* terms;  // of the values [chunk, vector]
  // [chunk, pair]: maxima and sums; then factors of the sum so far, and what is added to sums.
  float4* sums;
  float2* term_factors;  // [chunk, pair]

  __device__ __forceinline__ explicit Round(char* shared)
      : terms(reinterpret_cast<float4*>(shared)),
        sums(reinterpret_cast<float4*>(shared + kTermBytes)),
        term_factors(reinterpret_cast<float2*>(shared + kTermBytes + kMostChunks * kPairs * 16)) {}

  // Makes factors and terms of maxima and sums: those of a pair of rows by a warp. `before`: the maxima so far.
  __device__ __forceinline__ void make_factors(int end, float (&before)[2]) const {
    const int lane = threadIdx.x % 32, pair = threadIdx.x / 32;
#pragma unroll 1
    for (int base = 0; base < end; base += 32) {
      const int at = (base + lane) * kPairs + pair;
      const float4 s = base + lane < end ? sums[at] : float4{0.0f, 0.0f, 0.0f, 0.0f};
      const ChunkFactors low = ChunkFactors::of(s.x, s.y, before[0]);
      const ChunkFactors high = ChunkFactors::of(s.z, s.w, before[1]);
      if (base + lane >= end) continue;
      sums[at] = {low.so_far, low.sum, high.so_far, high.sum};
      term_factors[at] = {low.values, high.values};
    }
    __syncwarp();
  }
};

// What a thread that adds up chunks has: its vector of the item.
struct PieceSum {
  float sums[2] = {0.0f, 0.0f};
  float4 values = {0.0f, 0.0f, 0.0f, 0.0f};

  __device__ __forceinline__ void add(const float4& factors, const float4& terms) {
    sums[0] = __fmaf_rn(sums[0], factors.x, factors.y);
    sums[1] = __fmaf_rn(sums[1], factors.z, factors.w);
    values.x = __fmaf_rn(values.x, factors.x, terms.x);
    values.y = __fmaf_rn(values.y, factors.x, terms.y);
    values.z = __fmaf_rn(values.z, factors.z, terms.z);
    values.w = __fmaf_rn(values.w, factors.z, terms.w);
  }
  template <bool kIsF8>
  __device__ __forceinline__ void write(const AbsorbedParams& p, const QueryGroup& group,
                                        int index) const {
    const int n = index / kThreads, thread = index % kThreads, lane = thread % 32;
    const int column = thread / 32 * kSlice + value_column<kIsF8>(n, lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + half * 8;
      if (row >= group.num_rows()) continue;
      const float factor = 1.0f / sums[half];
      const float first = half == 0 ? values.x : values.z;
      const float second = half == 0 ? values.y : values.w;
      *reinterpret_cast<uint32_t*>(p.out + group.token_head(row, p.heads) * kLatent + column) =
          floats_to_bf16x2(first * factor, second * factor);
    }
  }
};

// `shared`: 32 KB.
template <bool kIsF8>
__device__ __forceinline__ void combine_piece(const AbsorbedParams& p, const ItemPart& part,
                                              int unit_shift, PieceShape shape, int piece,
                                              char* shared) {
  const Round round(shared);
  const int vector = threadIdx.x % shape.vectors, index = piece * shape.vectors + vector;
  const int stride = kThreads / shape.vectors, pair = index % 32 / 4;
  // Of a thread in a round.
  const int chunks = min(kRoundUnits >> unit_shift, kRoundChunks), units = chunks << unit_shift;
  const int first_chunk = threadIdx.x / shape.vectors * chunks;
  const int num_chunks = (part.num_units + (1 << unit_shift) - 1) >> unit_shift;
  float before[2] = {minus_infinity(), minus_infinity()};
  PieceSum total;
#pragma unroll 1
  for (int base = 0; base < num_chunks; base += chunks * stride) {
    const int end = min(chunks * stride, num_chunks - base);
    const int first_unit = (base + first_chunk) << unit_shift;
    NodeVector sums[kRoundUnits];  // of units, then where chunks begin those of chunks
#pragma unroll
    for (int u = 0; u < kRoundUnits; ++u)
      if (u < units && first_unit + u < part.num_units)
        sums[u] = NodeVector::load(p, part.first_unit + first_unit + u, index);
#pragma unroll
    for (int width = 1; width < kRoundUnits; width *= 2) {
      if (width < 1 << unit_shift) {
#pragma unroll
        for (int u = 0; u < kRoundUnits; u += 2 * width) sums[u].add(sums[u + width]);
      }
    }
    // Chunks of a thread whose places are in its registers: `use` gets their numbers in the round.
    const auto for_chunks = [&](auto use) {
#pragma unroll
      for (int u = 0; u < kRoundUnits; ++u) {
        const int at = first_chunk + (u >> unit_shift);
        if (u < units && (u & ((1 << unit_shift) - 1)) == 0 && at < end) use(at, sums[u]);
      }
    };
    if (vector % 4 == 0 && vector < 32)
      for_chunks([&](int at, const NodeVector& sum) {
        round.sums[at * Round::kPairs + pair] = {sum.rows[0].max, sum.rows[0].sum, sum.rows[1].max,
                                                 sum.rows[1].sum};
      });
    __syncwarp();
    meet();
    round.make_factors(end, before);
    meet();
    for_chunks([&](int at, const NodeVector& sum) {
      const float2 f = round.term_factors[at * Round::kPairs + pair];
      round.terms[at * shape.vectors + vector] = {
          ChunkFactors::term(sum.values.x, f.x), ChunkFactors::term(sum.values.y, f.x),
          ChunkFactors::term(sum.values.z, f.y), ChunkFactors::term(sum.values.w, f.y)};
    });
    __syncwarp();
    meet();
    if (first_chunk == 0) {
#pragma unroll 8
      for (int at = 0; at < end; ++at)
        total.add(round.sums[at * Round::kPairs + pair], round.terms[at * shape.vectors + vector]);
    }
    __syncwarp();
    meet();
  }
  if (first_chunk == 0) total.template write<kIsF8>(p, part.group, index);
  __syncwarp();
}

// REQUIRES: arrive() said that all nodes are there.
template <bool kIsF8>
__device__ __forceinline__ void combine_item(const AbsorbedParams& p, const ItemPart& part,
                                             int unit_shift, int blocks, const ItemCounters& item,
                                             uint32_t* flag, char* shared) {
  const PieceShape shape = PieceShape::of(blocks);
#pragma unroll 1
  while (true) {
    meet();  // the flag has been read
    // Nobody takes a piece before it has time for it: others may have.
    if (threadIdx.x == 0) *flag = atomicAdd(item.taken, 1);
    __syncwarp();
    meet();
    const auto piece = static_cast<int>(*flag);
    if (piece >= shape.num_pieces()) return;
    combine_piece<kIsF8>(p, part, unit_shift, shape, piece, shared);
  }
}

}  // namespace fathom::cuda::absorbed
