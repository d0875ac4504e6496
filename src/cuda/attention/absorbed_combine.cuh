#pragma once
// How the blocks that share a long item add up the sums of its units together: the fix-up of stream-K, done by all of
// an item's blocks instead of by the last one.
//
//   SharedNodes::store(p, unit, node);                               // each unit of this block
//   if (arrive(tickets, blocks, may_wait, flag)) combine_item<kIsF8>(p, part, shares, blocks, tickets, flag, shared);
//   leave(tickets, blocks);
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

// Counters of an item that several blocks share. They are zero between calls.
struct ItemTickets {
  uint32_t arrived, taken, left, unused;
};

// Items of no more blocks are added up by the last one alone: the others have long gone on to their next item.
inline constexpr int kFewSharers = 3;
inline constexpr int64_t kMostWaitCycles = 100'000;  // some 55 us
inline constexpr int kRoundChunks = 4;  // of a thread, whose loads are under way together

// The warps that compute wait for each other; others do not take part.
__device__ __forceinline__ void meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

__device__ __forceinline__ uint32_t load_acquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// Whether all blocks of the item have stored their nodes. All threads that compute, of each block once.
__device__ __forceinline__ bool arrive(ItemTickets* tickets, int blocks, bool may_wait,
                                       uint32_t* flag) {
  const auto all = static_cast<uint32_t>(blocks);
  __threadfence();
  meet();
  if (threadIdx.x == 0) {
    uint32_t arrived = atomicAdd(&tickets->arrived, 1) + 1;
    const int64_t begin = clock64();
    while (may_wait && arrived < all && clock64() - begin < kMostWaitCycles)
      arrived = load_acquire(&tickets->arrived);
    *flag = arrived == all ? 1 : 0;
  }
  meet();
  const bool are_all = *flag != 0;
  if (are_all) __threadfence();
  return are_all;
}

// The last one clears the tickets for the next call.
__device__ __forceinline__ void leave(ItemTickets* tickets, int blocks) {
  if (threadIdx.x != 0) return;
  if (atomicAdd(&tickets->left, 1) + 1 == static_cast<uint32_t>(blocks)) *tickets = {};
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
  template <bool kIsF8>
  __device__ __forceinline__ void write(const AbsorbedParams& p, const QueryGroup& group,
                                        int index) const {
    const int n = index / kThreads, thread = index % kThreads, lane = thread % 32;
    const int column = thread / 32 * kSlice + value_column<kIsF8>(n, lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + half * 8;
      if (row >= group.num_rows()) continue;
      const float factor = 1.0f / rows[half].sum;
      const float first = half == 0 ? values.x : values.z;
      const float second = half == 0 ? values.y : values.w;
      *reinterpret_cast<uint32_t*>(p.out + group.token_head(row, p.heads) * kLatent + column) =
          floats_to_bf16x2(first * factor, second * factor);
    }
  }
};

// Vector `index` of a chunk of kUnits units.
template <int kUnits>
__device__ __forceinline__ NodeVector chunk_sum(const AbsorbedParams& p, const ItemPart& part,
                                                int chunk, int index) {
  NodeVector units[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const int unit = chunk * kUnits + u;
    if (unit < part.num_units) units[u] = NodeVector::load(p, part.first_unit + unit, index);
  }
#pragma unroll
  for (int width = 1; width < kUnits; width *= 2) {
#pragma unroll
    for (int u = 0; u < kUnits; u += 2 * width) units[u].add(units[u + width]);
  }
  return units[0];
}

// Columns of an item that a block adds up at a time: `vectors` float4s of its nodes, and so many chunks side by side
// that all threads have one. The more blocks there are, the fewer columns.
struct PieceShape {
  int vectors;

  __device__ __forceinline__ static PieceShape of(int blocks) {
    return {blocks >= 64 ? 32 : blocks >= 32 ? 64 : blocks >= 16 ? 128 : 256};
  }
  __device__ __forceinline__ int num_pieces() const { return 8 * kThreads / vectors; }
  __device__ __forceinline__ int round_chunks() const { return kRoundChunks * kThreads / vectors; }
};

// `shared`: 32 KB.
template <int kUnits, bool kIsF8>
__device__ __forceinline__ void combine_piece(const AbsorbedParams& p, const ItemPart& part,
                                              PieceShape shape, int piece, char* shared) {
  auto* const values = reinterpret_cast<float4*>(shared);
  auto* const stats = values + kRoundChunks * kThreads;
  const int vector = threadIdx.x % shape.vectors, index = piece * shape.vectors + vector;
  const int first_chunk = threadIdx.x / shape.vectors, stride = kThreads / shape.vectors;
  const int num_chunks = (part.num_units + kUnits - 1) / kUnits;
  NodeVector total;
#pragma unroll 1
  for (int base = 0; base < num_chunks; base += shape.round_chunks()) {
#pragma unroll(kUnits > 2 ? 1 : kRoundChunks)
    for (int i = 0; i < kRoundChunks; ++i) {
      const int at = i * stride + first_chunk;
      const NodeVector sum = chunk_sum<kUnits>(p, part, base + at, index);
      values[at * shape.vectors + vector] = sum.values;
      stats[at * shape.vectors + vector] = {sum.rows[0].max, sum.rows[0].sum, sum.rows[1].max,
                                            sum.rows[1].sum};
    }
    __syncwarp();
    meet();
    const int end = min(shape.round_chunks(), num_chunks - base);
    if (first_chunk == 0) {
#pragma unroll 4
      for (int at = 0; at < end; ++at) {
        const float4 s = stats[at * shape.vectors + vector];
        total.add({{{s.x, s.y}, {s.z, s.w}}, values[at * shape.vectors + vector]});
      }
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
                                             const Shares& shares, int blocks, ItemTickets* tickets,
                                             uint32_t* flag, char* shared) {
  const PieceShape shape = PieceShape::of(blocks);
  uint32_t taken = threadIdx.x == 0 ? atomicAdd(&tickets->taken, 1) : 0;
#pragma unroll 1
  while (true) {
    meet();  // the flag has been read
    if (threadIdx.x == 0) *flag = taken;
    meet();
    const auto piece = static_cast<int>(*flag);
    if (piece >= shape.num_pieces()) return;
    if (threadIdx.x == 0) taken = atomicAdd(&tickets->taken, 1);
    switch (kChunkShift - shares.row_shift) {
      case 0:
        combine_piece<1, kIsF8>(p, part, shape, piece, shared);
        break;
      case 1:
        combine_piece<2, kIsF8>(p, part, shape, piece, shared);
        break;
      case 2:
        combine_piece<4, kIsF8>(p, part, shape, piece, shared);
        break;
      default:
        combine_piece<8, kIsF8>(p, part, shape, piece, shared);
        break;
    }
  }
}

}  // namespace fathom::cuda::absorbed
