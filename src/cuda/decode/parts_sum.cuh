#pragma once
// The kernel behind attention adds up the parts that it has left (cuda/attention/absorbed_parts.cuh).
//
//   const PartsSum sum{p, warps, head, slice, shared};  sum.init();                         // all of the token's warps
//   const uint32_t two = sum.add(parts);
//
// Internal to cuda/decode/.

#include "cuda/attention/absorbed_parts.cuh"
#include "cuda/mma/panels.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/copy.cuh"

namespace fathom::cuda::absorbed {

// Warps that add up a token's columns, which follow each other.
struct TokenWarps {
  int warps, first_warp, barrier;

  __device__ __forceinline__ int thread() const {
    return static_cast<int>(threadIdx.x) - first_warp * 32;
  }
  __device__ __forceinline__ void meet() const {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(warps * 32) : "memory");
  }
};

inline constexpr int kPartLanes = kSlice / 4;
inline constexpr int kWarpUnits = 24;  // parts that a round has for each of a token's warps
static_assert(kWarpUnits % kChunkUnits == 0 && kWarpUnits <= 32);

// Of all tokens together, eight warps.
struct PartsShared {
  static constexpr int kMostUnits = 8 * kWarpUnits;

  // Of parts: the first ones of all chunks, which their chunk's terms replace, then the second ones, and so on.
  alignas(16) float4 values[kMostUnits][kPartLanes];
  float2 nodes[kMostUnits];   // factors of what is before a node's own parts and of those; or kSkip
  float2 sums[kMostUnits];    // of chunks: maximum and sum
  float2 steps[kMostUnits];   // of chunks: factor of the sum so far, and what is added to sums
  float factors[kMostUnits];  // of chunks' values
  uint64_t came[8];           // a token's values, at its first warp's

  // The node that adds to part `unit` those behind it, by level: pairs, pairs of pairs, and of those.
  __device__ __forceinline__ float2& node(int level, int unit) {
    return nodes[kMostUnits - (kMostUnits >> level) + (unit >> (level + 1))];
  }
};

// How a token's warps add up its parts, for two columns of head `row`, 2 lane and the next of those of `slice`. While
// the copy engine brings values, what they are multiplied by is made of the statistics. Little code, since it runs once
// a call and waits for its instructions.
struct PartsSum {
  const AbsorbedParams& p;
  const TokenWarps& warps;
  int row, slice;
  PartsShared& shared;

  __device__ __forceinline__ int thread() const { return warps.thread(); }
  __device__ __forceinline__ int first() const { return warps.first_warp * kWarpUnits; }
  __device__ __forceinline__ int round() const { return warps.warps * kWarpUnits; }
  __device__ __forceinline__ uint32_t came() const {
    return shared_address(&shared.came[warps.first_warp]);
  }

  // Before all else.
  __device__ __forceinline__ void init() const {
    if (thread() == 0) {
      barrier_init(came(), 1);
      barriers_are_ready();
    }
    __syncwarp();
    warps.meet();
  }

  // Asks for the values of `units` parts from number `part` on; returns the statistics of this thread's.
  __device__ __forceinline__ Merged ask(int part, int units, int shift) const {
    Merged own = Merged::none();
    if (thread() == 0) barrier_expect(came(), units * kSlice * 4);
    if (thread() < units) {
      const int64_t at = PartsPlace::at(part + thread(), slice, row);
      const int of_chunk = thread() & ((1 << shift) - 1);
      const int to = first() + of_chunk * (round() >> shift) + (thread() >> shift);
      const float2 stats = __ldcg(p.stats + at);
      copy_row(shared_address(shared.values[to]), p.values + at * kSlice, kSlice * 4, came());
      own = {stats.x, stats.y};
    }
    __syncwarp();
    return own;
  }

  // Lanes that follow each other have the parts of a chunk: the first one's statistics become the chunk's.
  __device__ __forceinline__ void add_chunk_stats(Merged& own, int shift) const {
#pragma unroll 1
    for (int level = 0; level < shift; ++level) {
      const float max = __shfl_down_sync(0xffffffffu, own.max, 1 << level);
      const float sum = __shfl_down_sync(0xffffffffu, own.sum, 1 << level);
      if (thread() < round() && (thread() & ((2 << level) - 1)) == 0) {
        const MergeFactors f = own.add(max, sum);
        shared.node(level, first() + thread()) = {f.skip ? ChunkFactors::kSkip : f.old_factor,
                                                  f.new_factor};
      }
      __syncwarp();
    }
  }

  // Factors of a round's chunks, 32 by a warp. `before`: the maximum of all before the round, then with it.
  __device__ __forceinline__ void make_factors(int chunks, float& before) const {
    const float2* const sums = shared.sums + first();
    const int lane = thread() % 32;
    float start = before;  // of all before the warp's own
#pragma unroll 1
    for (int at = lane; at < chunks; at += 32) {
      const float max = sums[at].y == 0.0f ? minus_infinity() : sums[at].x;
      if (at < thread() - lane) start = fmaxf(start, max);
      before = fmaxf(before, max);
    }
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      start = fmaxf(start, __shfl_xor_sync(0xffffffffu, start, lanes));
      before = fmaxf(before, __shfl_xor_sync(0xffffffffu, before, lanes));
    }
    if (thread() - lane >= chunks) return;
    const float2 s = thread() < chunks ? sums[thread()] : float2{0.0f, 0.0f};
    const ChunkFactors f = ChunkFactors::of(s.x, s.y, start);
    if (thread() < chunks) {
      shared.steps[first() + thread()] = {f.so_far, f.sum};
      shared.factors[first() + thread()] = f.values;
    }
    __syncwarp();
  }

  // Values of the 1 << kShift parts from `unit` on, whose first one's lie at `slot`, added up.
  template <int kShift>
  __device__ __forceinline__ float4 values_of(int unit, int slot, int stride) const {
    if constexpr (kShift == 0) {
      return shared.values[slot][thread() % kPartLanes];
    } else {
      constexpr int kHalf = 1 << (kShift - 1);
      const float4 before = values_of<kShift - 1>(unit, slot, stride);
      const float4 own = values_of<kShift - 1>(unit + kHalf, slot + kHalf * stride, stride);
      const float2 f = shared.node(kShift - 1, unit);
      return merge(before, {f.x, f.y, f.x == ChunkFactors::kSkip}, own);
    }
  }
  template <int kShift>
  __device__ __forceinline__ void make_terms(int chunks) const {
#pragma unroll 1
    for (int chunk = thread() / kPartLanes; chunk < chunks;
         chunk += warps.warps * 32 / kPartLanes) {
      const int slot = first() + chunk;
      const float factor = shared.factors[slot];
      const float4 v = values_of<kShift>(first() + (chunk << kShift), slot, round() >> kShift);
      shared.values[slot][thread() % kPartLanes] = {
          ChunkFactors::term(v.x, factor), ChunkFactors::term(v.y, factor),
          ChunkFactors::term(v.z, factor), ChunkFactors::term(v.w, factor)};
    }
  }
  __device__ __forceinline__ void make_terms(int shift, int chunks) const {
    if (shift == 0) make_terms<0>(chunks);
    if (shift == 1) make_terms<1>(chunks);
    if (shift == 2) make_terms<2>(chunks);
    if (shift == 3) make_terms<3>(chunks);
  }

  // As bf16: for the first warp. REQUIRES: the token has parts, init().
  __device__ __forceinline__ uint32_t add(const TokenParts& parts) const {
    const int shift = parts.shift;
    float before = minus_infinity(), sum = 0.0f;
    float2 total = {0.0f, 0.0f};
    uint32_t phase = 0;
#pragma unroll 1
    for (int base = 0; base < parts.count; base += round(), phase ^= 1) {
      const int units = min(round(), parts.count - base);
      const int chunks = (units + (1 << shift) - 1) >> shift;
      Merged own = ask(parts.first + base, units, shift);
      add_chunk_stats(own, shift);
      if (thread() < units && (thread() & ((1 << shift) - 1)) == 0)
        shared.sums[first() + (thread() >> shift)] = {own.max, own.sum};
      __syncwarp();
      warps.meet();
      make_factors(chunks, before);
      warps.meet();
      barrier_wait(came(), phase);
      make_terms(shift, chunks);
      __syncwarp();
      warps.meet();
      if (thread() < 32) {
#pragma unroll 8
        for (int at = first(); at < first() + chunks; ++at) {
          const float2 f = shared.steps[at];
          const float2 t = reinterpret_cast<const float2*>(shared.values[at])[thread()];
          sum = __fmaf_rn(sum, f.x, f.y);
          total.x = __fmaf_rn(total.x, f.x, t.x);
          total.y = __fmaf_rn(total.y, f.x, t.y);
        }
      }
      if (base + round() >= parts.count) break;
      publish_to_products();  // and to the copy engine, which writes here next
      warps.meet();
    }
    const float factor = 1.0f / sum;
    return floats_to_bf16x2(total.x * factor, total.y * factor);
  }
};

}  // namespace fathom::cuda::absorbed
