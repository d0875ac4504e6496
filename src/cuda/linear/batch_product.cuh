#pragma once
// out[t, n] = sum over k of weight[n, k] * x[t, k] for up to 128 tokens, of heads any number. Bound by reading the
// weight once, rows * in * sizeof(W) bytes; the tokens come from the L2 cache, once per block.
//
// A block has 64 rows of the weight and all tokens. One thread feeds a ring of stages in shared memory, each a line
// (128 bytes) of the weight's rows and of the tokens, and a warp the lines' scales; two warpgroups multiply on the
// tensor cores, each half of the tokens: weights are the first operand, tokens the columns. Where a matrix has few
// tiles of rows a group of blocks, part of a cluster, divides its lines and adds the sums in order of rank through each
// other's shared memory.
//
// Grid: x = blocks of matrix a, then of b, y = tiles of tokens, z = heads. Two blocks fit on a multiprocessor, so one's
// loads run while the other starts or stores, and the next kernel's weights are under way before this one ends. FP8 has
// a kernel of which one fits, with twice the stages, for grids that then still run at once.
// Shared memory: stages, scales of the next lines (f8, i8 of blocks), barriers; at the end the block's sums
// [token, row] in place of the stages.
// Pairs of 4 bits with zero points (u4) have lines of 64 channels, 32 bytes of a row: each warpgroup takes every second
// line with all tokens, at most 64, and expands its pairs in registers (batch_pairs.cuh). More tokens are another row
// of blocks.
// Order of sums: k rises within a block, of u4 within a warpgroup, the second of which is added to the first; f8 and i8
// in blocks of 128 that are scaled and added in float32; then ranks rise. i8 with scales of channels is summed as
// integers and scaled as it is stored.
// The division depends on the matrices alone, so a row has the same bits at every number of tokens up to 128, and at
// every larger one, where there is none.

#include <algorithm>
#include <type_traits>

#include "cuda/linear/batch_pairs.cuh"
#include "cuda/linear/batch_params.h"
#include "cuda/linear/line.cuh"
#include "cuda/linear/store.cuh"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {

// Lines whose scales are loaded at once.
inline constexpr int kMostStages = 8, kScaleStep = 4;
inline constexpr int kBatchConsumers = 2 * 128;

template <class WeightT, int kTokensT, bool kAloneT>
struct BatchConfig {
  using Weight = WeightT;
  using Sum = OperandSumOf<Weight>;  // of a line
  using Total = SumOf<Weight>;
  static constexpr bool kScaled = kLineScales<Weight>, kExpands = kIsU4<Weight>;
  static constexpr int kThreads = kBatchConsumers + (kScaled ? 2 : 1) * 32;
  static constexpr bool kAlone = kAloneT;   // on a multiprocessor, else there are two
  static constexpr int kTokens = kTokensT;  // of a block
  static constexpr int kColumns = kExpands ? kTokens : kTokens / 2;  // of a warpgroup
  static constexpr int kSums = kColumns / 2;                         // of a thread
  // Lines that are multiplied at a time: a scaled line's sums, kept apart until they are scaled, are few then.
  static constexpr int kAhead = kScaled && (kAlone || kColumns <= 32) ? 2 : 1;
  // Elements of a line as the copy engine counts them: of the tokens, and of the weight's rows.
  static constexpr int kWidth = kExpands ? kLineWidth<tensor::Bf16> : kLineWidth<Weight>;
  static constexpr int kWeightWidth = kExpands ? kPairLineBytes : kWidth;
  static constexpr int kWeightBytes = kBatchRows * (kExpands ? kPairLineBytes : kLineBytes);
  static constexpr int kTileBytes = kWeightBytes + kTokens * kLineBytes;
  // Floats of a line; a warp that stores those of four lines meets no bank twice.
  static constexpr int kScales = kScaled ? kTokens + 8 : 0;
  // Of kScaleStep lines each, that are asked for ahead.
  static constexpr int kScaleSets = kTokens > 64 ? 2 : 4;
  static constexpr int kMostShared = (kAlone ? 226 : 112) << 10;
  static constexpr int kStages =
      std::min(kAlone ? 2 * kMostStages : kMostStages,
               (kMostShared - kScaleStep * kScales * 4) / (kTileBytes + kScales * 4 + 16));
  // Where a stage is free again, so must be the room of the scales that come with its line.
  static constexpr int kScaleLines = kStages + kScaleStep;
  static constexpr int kScalesAt = kStages * kTileBytes;
  static constexpr int kBarriersAt = kScalesAt + kScaleLines * kScales * 4;
  static constexpr int kSharedBytes = kBarriersAt + kStages * 16;
  static constexpr int kSumStride = kBatchRows + 4;  // keeps the banks apart
  static_assert(kTokens * kSumStride * 4 <= kScalesAt && kStages >= 3);
};

template <class C>
struct BatchProduct {
  using Weight = typename C::Weight;
  using Sum = typename C::Sum;
  using Total = typename C::Total;
  // Warps that read a stage.
  static constexpr int kConsumerWarps = kBatchConsumers / 32 / (C::kExpands ? 2 : 1);
  // Arrivals that fill a stage: the loads' and each lane's that keeps scales.
  static constexpr int kFillings = C::kScaled ? 1 + 32 : 2;

  const BatchParams& params;
  const ProductParams& p;
  const ProductPart& part;
  char* shared;
  uint32_t base;
  int rank, unit, begin, end, first_token, num_tokens;  // of this block

  __device__ __forceinline__ BatchProduct(const BatchParams& all, char* shared_memory)
      : params(all),
        p(all.product),
        part(static_cast<int>(blockIdx.x) < p.blocks_a ? p.a : p.b),
        shared(shared_memory),
        base(shared_address(shared_memory)) {
    const int block = static_cast<int>(blockIdx.x) - (&part == &p.a ? 0 : p.blocks_a);
    rank = block % part.group;
    unit = block / part.group;
    begin = rank * p.lines / part.group;
    end = (rank + 1) * p.lines / part.group;
    first_token = static_cast<int>(blockIdx.y) * C::kTokens;
    num_tokens = min(p.tokens - first_token, C::kTokens);
  }

  __device__ __forceinline__ bool works() const { return unit < part.units; }

  // A role's place in the ring.
  struct Ring {
    uint32_t base;
    int stage = 0;
    uint32_t phase = 0;
    __device__ uint32_t weights() const { return base + stage * C::kTileBytes; }
    __device__ uint32_t tokens() const { return weights() + C::kWeightBytes; }
    __device__ uint32_t full() const { return base + C::kBarriersAt + stage * 16; }
    __device__ uint32_t empty() const { return full() + 8; }
    __device__ void advance() {
      if (++stage < C::kStages) return;
      stage = 0;
      phase ^= 1;
    }
  };

  // One thread, which may load weights right away; the others meet it at a barrier of the block.
  __device__ __forceinline__ void init_barriers() const {
    Ring ring{base};
    for (int i = 0; i < C::kStages; ++i, ring.advance()) {
      barrier_init(ring.full(), kFillings);
      barrier_init(ring.empty(), kConsumerWarps);
    }
    barriers_are_ready();
  }

  // One thread of the feeding warp.
  __device__ __forceinline__ void load_weights(const Ring& ring, int line) const {
    barrier_expect(ring.full(), C::kWeightBytes + min(p.tokens, C::kTokens) * kLineBytes);
    load_tile(&part == &p.a ? &params.a : &params.b, ring.weights(), ring.full(),
              line * C::kWeightWidth,
              static_cast<int>(blockIdx.z) * params.weight_head + unit * kBatchRows);
  }
  __device__ __forceinline__ void load_tokens(const Ring& ring, int line) const {
    load_tile(&params.x, ring.tokens(), ring.full(),
              static_cast<int>(blockIdx.z) * params.x_head + line * C::kWidth, first_token);
  }
  // The stages that are free at the start.
  __device__ __forceinline__ int first_end() const { return min(end, begin + C::kStages); }
  __device__ __forceinline__ void feed_first_weights() const {
    Ring ring{base};
    for (int line = begin; line < first_end(); ++line, ring.advance()) load_weights(ring, line);
  }
  __device__ __forceinline__ void feed_first_tokens() const {
    Ring ring{base};
    for (int line = begin; line < first_end(); ++line, ring.advance()) load_tokens(ring, line);
  }

  // Scales of kScaleStep lines. A lane has those of one line, for every eighth token.
  struct Scales {
    float tokens[C::kTokens / 8], weight;
  };
  __device__ __forceinline__ void load_scales(int first_line, Scales& scales) const {
    const int lane = threadIdx.x % 32, line = min(first_line + lane % kScaleStep, end - 1);
    scales.weight = part.w_scale[blockIdx.z * part.w_scale_head +
                                 int64_t{unit * kBatchRows / kScaleBlock} * p.lines + line];
#pragma unroll
    for (int i = 0; i < C::kTokens / 8; ++i) {
      const int token = min(first_token + i * 8 + lane / kScaleStep, p.tokens - 1);
      scales.tokens[i] = p.x_scale[(int64_t{token} * p.heads + blockIdx.z) * p.lines + line];
    }
  }
  __device__ __forceinline__ float* scales_of(int line) const {
    return reinterpret_cast<float*>(shared + C::kScalesAt) +
           (line - begin) % C::kScaleLines * C::kScales;
  }
  // Products of both, which the sums are multiplied with.
  __device__ __forceinline__ void keep_scales(int first_line, const Scales& scales) const {
    const int lane = threadIdx.x % 32;
    float* const to = scales_of(first_line + lane % kScaleStep);
#pragma unroll
    for (int i = 0; i < C::kTokens / 8; ++i)
      to[i * 8 + lane / kScaleStep] = scales.tokens[i] * scales.weight;
  }

  // One thread, once the kernel before is done.
  __device__ __forceinline__ void feed_tiles() const {
    feed_first_tokens();
    Ring ring{base};
    for (int line = begin; line < end; ++line, ring.advance()) {
      if (line >= begin + C::kStages) {
        barrier_wait(ring.empty(), ring.phase ^ 1);
        load_weights(ring, line);
        load_tokens(ring, line);
      }
      if constexpr (!C::kScaled) barrier_arrive(ring.full());
    }
  }
  // A warp of its own, which waits for memory several times a tile: the copies go on meanwhile.
  __device__ __forceinline__ void feed_scales() const {
    constexpr int kAheadLines = C::kScaleSets * kScaleStep;
    Scales scales[C::kScaleSets];
#pragma unroll
    for (int i = 0; i < C::kScaleSets; ++i)
      if (begin + i * kScaleStep < end) load_scales(begin + i * kScaleStep, scales[i]);
    Ring ring{base};
    for (int first = begin; first < end; first += kAheadLines) {
#pragma unroll
      for (int i = 0; i < C::kScaleSets; ++i) {
        const int from = first + i * kScaleStep;
        for (int line = from; line < min(from + kScaleStep, end); ++line, ring.advance()) {
          if (line >= begin + C::kStages) {
            barrier_wait(ring.empty(), ring.phase ^ 1);
            __syncwarp();  // once the stage is loaded, a lane that still waits could miss the phase
          }
          if (line == from) keep_scales(from, scales[i]);
          barrier_arrive(ring.full());
        }
        if (from + kAheadLines < end) load_scales(from + kAheadLines, scales[i]);
      }
    }
  }

  // The warp has read the stage and its scales.
  static __device__ __forceinline__ void release(uint32_t empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty);
  }

  static __device__ __forceinline__ int first_column() {
    return C::kExpands ? 0 : static_cast<int>(threadIdx.x) / 128 * C::kColumns;  // of a warpgroup
  }
  static __device__ __forceinline__ void multiply_stage(const Ring& ring, bool add,
                                                        Sum (&sums)[C::kSums]) {
    const uint32_t a = descriptor_word(ring.weights());
    const uint32_t b = descriptor_word(ring.tokens() + first_column() * kLineBytes);
    mma_begin(sums);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      mma(sums, descriptor(a + i * kStepOfK), descriptor(b + i * kStepOfK), add || i > 0,
          OperandOf<Weight>{});
    mma_commit();
  }

  // One sum of all lines; a line's products run while the next line's are started.
  __device__ __forceinline__ void multiply(Sum (&sums)[C::kSums]) const {
    Ring ring{base};
    uint32_t used = 0;
    for (int line = begin; line < end; ++line, ring.advance()) {
      barrier_wait(ring.full(), ring.phase);
      multiply_stage(ring, line > begin, sums);
      mma_wait<1>(sums);
      if (line > begin) release(used);
      used = ring.empty();
    }
    mma_wait<0>(sums);
  }

  // The sums of a line are scaled and added to the totals.
  __device__ __forceinline__ void add_scaled(const Sum (&sums)[C::kSums], int line,
                                             float (&totals)[C::kSums]) const {
    const float* const scales = scales_of(line) + first_column() + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < C::kSums; i += 4) {
      const float2 scale = *reinterpret_cast<const float2*>(scales + i * 2);
      totals[i] = fmaf(static_cast<float>(sums[i]), scale.x, totals[i]);
      totals[i + 1] = fmaf(static_cast<float>(sums[i + 1]), scale.y, totals[i + 1]);
      totals[i + 2] = fmaf(static_cast<float>(sums[i + 2]), scale.x, totals[i + 2]);
      totals[i + 3] = fmaf(static_cast<float>(sums[i + 3]), scale.y, totals[i + 3]);
    }
  }
  // Two lines, the second multiplied while the first one's sums are scaled.
  __device__ __forceinline__ void multiply_two(Ring& ring, int line,
                                               float (&totals)[C::kSums]) const {
    Sum first[C::kSums], second[C::kSums];
    const uint32_t used = ring.empty();
    barrier_wait(ring.full(), ring.phase);
    multiply_stage(ring, false, first);
    ring.advance();
    barrier_wait(ring.full(), ring.phase);
    multiply_stage(ring, false, second);
    mma_wait<1>(first);
    add_scaled(first, line, totals);
    release(used);
    mma_wait<0>(second);
    add_scaled(second, line + 1, totals);
    release(ring.empty());
    ring.advance();
  }
  __device__ __forceinline__ void multiply_scaled(float (&totals)[C::kSums]) const {
    Ring ring{base};
#pragma unroll
    for (int i = 0; i < C::kSums; ++i) totals[i] = 0;
    int line = begin;
    if constexpr (C::kAhead == 2) {
      for (; line + 1 < end; line += 2) multiply_two(ring, line, totals);
    }
    for (; line < end; ++line, ring.advance()) {
      Sum sums[C::kSums];
      barrier_wait(ring.full(), ring.phase);
      multiply_stage(ring, false, sums);
      mma_wait<0>(sums);
      add_scaled(sums, line, totals);
      release(ring.empty());
    }
  }

  // Starts half a line of pairs, whose scales' first line is `after` lines before it.
  static __device__ __forceinline__ void multiply_half(const Ring& ring, const PairScales& scales,
                                                       int after, int half,
                                                       float (&sums)[C::kSums]) {
    uint32_t a[kPairSteps][4];
    PairLines::expand(ring.weights(), scales, after, half, a);
    const uint32_t b = descriptor_word(ring.tokens()) + half * kPairSteps * kStepOfK;
    mma_begin(sums);
#pragma unroll
    for (int step = 0; step < kPairSteps; ++step)
      mma(sums, a[step], descriptor(b + step * kStepOfK), true, tensor::Bf16{});
    mma_commit();
  }
  // Every second line with all tokens.
  __device__ __forceinline__ void multiply_pairs(float (&totals)[C::kSums]) const {
    const int warpgroup = static_cast<int>(threadIdx.x) / 128;
#pragma unroll
    for (int i = 0; i < C::kSums; ++i) totals[i] = 0;
    const PairLines lines(part, p.in, unit * kBatchRows);
    PairScales now, next = lines.scales(begin + warpgroup);
    for (int line = begin + warpgroup; line < end; line += kLinesOfScales) {
      now = next;
      if (line + kLinesOfScales < end) next = lines.scales(line + kLinesOfScales);
#pragma unroll
      for (int i = 0; i < kLinesOfScales; i += 2) {
        if (line + i >= end) break;
        const int use = line + i - begin;
        const Ring ring{base, use % C::kStages, static_cast<uint32_t>(use / C::kStages & 1)};
        barrier_wait(ring.full(), ring.phase);
#pragma unroll
        for (int half = 0; half < 2; ++half) multiply_half(ring, now, i, half, totals);
        mma_wait<0>(totals);
        release(ring.empty());
      }
    }
  }

  // REQUIRES: all consumers have read the ring, in whose place the sums are kept, to its end.
  __device__ __forceinline__ void keep_sums(const Total (&totals)[C::kSums], bool adds) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    Total* const sums =
        reinterpret_cast<Total*>(shared) + first_column() * C::kSumStride + warp * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < C::kSums; ++i) {
      Total& sum = sums[(i / 4 * 8 + lane % 4 * 2 + i % 2) * C::kSumStride + i % 4 / 2 * 8];
      sum = adds ? totals[i] + sum : totals[i];
    }
  }
  // Every warpgroup its columns or, where they have the same ones, the first one to the second one's. All threads.
  __device__ __forceinline__ void keep_all_sums(const Total (&totals)[C::kSums]) const {
    const bool consumes = works() && threadIdx.x < kBatchConsumers;
    const bool is_first = threadIdx.x < kBatchConsumers / 2;
    if (consumes && !(C::kExpands && is_first)) keep_sums(totals, false);
    __syncthreads();
    if constexpr (C::kExpands) {
      if (consumes && is_first) keep_sums(totals, true);
      __syncthreads();
    }
  }

  __device__ __forceinline__ void consume(Total (&totals)[C::kSums]) const {
    if constexpr (C::kExpands) {
      multiply_pairs(totals);
    } else if constexpr (C::kScaled) {
      multiply_scaled(totals);
    } else {
      multiply(totals);
    }
  }

  // Totals, integers by their bits.
  static __device__ __forceinline__ void add(float& sum, float more) {
    if constexpr (std::is_same_v<Total, int>) {
      sum = __int_as_float(__float_as_int(sum) + __float_as_int(more));
    } else {
      sum += more;
    }
  }
  // Adds up what all blocks of the group have, in order of rank. All reads are under way before the first addition.
  __device__ __forceinline__ float4 group_sum(const float* mine, uint32_t first) const {
    float4 parts[kMostGroup];
#pragma unroll
    for (int i = 0; i < kMostGroup; ++i)
      if (i < part.group)
        parts[i] = load_remote4(shared_address(mine), first + static_cast<uint32_t>(i));
    float4 sum = parts[0];
#pragma unroll
    for (int i = 1; i < kMostGroup; ++i) {
      if (i >= part.group) continue;
      add(sum.x, parts[i].x), add(sum.y, parts[i].y);
      add(sum.z, parts[i].z), add(sum.w, parts[i].w);
    }
    return sum;
  }
  // Integers by their bits, of rows row to row + 3, every operation rounded.
  __device__ __forceinline__ float4 scaled(float4 sum, int token, int row) const {
    if constexpr (std::is_same_v<Total, float>) return sum;
    const float x_scale = p.x_scale[token];
    const auto value = [&](float bits, int i) {
      const float w_scale = part.w_scale[min(row + i, part.rows - 1)];
      return __fmul_rn(__int2float_rn(__float_as_int(bits)), __fmul_rn(x_scale, w_scale));
    };
    return {value(sum.x, 0), value(sum.y, 1), value(sum.z, 2), value(sum.w, 3)};
  }

  // REQUIRES: the sums of all blocks of the group are there. Each stores a part of the tokens.
  __device__ __forceinline__ void store() const {
    const float* const sums = reinterpret_cast<const float*>(shared);
    const uint32_t first = part.group > 1 ? cluster_rank() - static_cast<uint32_t>(rank) : 0;
    const int begin_token = rank * num_tokens / part.group;
    const int end_token = (rank + 1) * num_tokens / part.group;
    constexpr int kPieces = kBatchRows / 4;  // of a token, four rows each
    const int pieces = (end_token - begin_token) * kPieces;
    for (int i = threadIdx.x; i < pieces; i += C::kThreads) {
      const int token = begin_token + i / kPieces, row = i % kPieces * 4;
      const float* const mine = sums + token * C::kSumStride + row;
      const float4 sum =
          part.group > 1 ? group_sum(mine, first) : *reinterpret_cast<const float4*>(mine);
      const int out_row = unit * kBatchRows + row;
      store_product_4(p, part, first_token + token, out_row, scaled(sum, token, out_row));
    }
  }
};

// Types that have a kernel with the shared memory of a whole multiprocessor.
template <class Weight>
inline constexpr bool kMayBeAlone = std::is_same_v<Weight, tensor::F8E4M3>;

// All lines of a block, whose sums then lie in shared memory in place of the stages; those of its cluster are there.
template <class C>
__device__ __forceinline__ void multiply_all(const BatchProduct<C>& product) {
  const bool works = product.works(), feeds = threadIdx.x >= kBatchConsumers;
  if (works && threadIdx.x == kBatchConsumers) {
    product.init_barriers();
    product.feed_first_weights();
  }
  __syncthreads();
  wait_for_previous();
  typename C::Total totals[C::kSums];
  if (works) {
    if (threadIdx.x == kBatchConsumers) {
      product.feed_tiles();
    } else if (C::kScaled && threadIdx.x >= kBatchConsumers + 32) {
      product.feed_scales();
    } else if (!feeds) {
      product.consume(totals);
    }
  }
  __syncthreads();
  product.keep_all_sums(totals);
  if (product.p.cluster > 1) cluster_sync();
}

// Nobody leaves while its sums are read; the fence of cluster_sync() would wait for what was stored.
__device__ __forceinline__ void leave_cluster() {
  cluster_arrive_relaxed();
  cluster_wait();
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kAlone ? 1 : 2)
    batch_product_kernel(const __grid_constant__ BatchParams params) {
  extern __shared__ __align__(1024) char shared[];
  let_next_start();
  const BatchProduct<C> product(params, shared);
  multiply_all(product);
  if (product.works()) product.store();
  if (params.product.cluster > 1) leave_cluster();
}

template <class C>
void start_batch_product(const BatchParams& params, unsigned blocks, ops::Stream& stream) {
  launch(batch_product_kernel<C>,
         {.grid = dim3(blocks, num_tiles(params.product.tokens, C::kTokens),
                       static_cast<unsigned>(params.product.heads)),
          .block = C::kThreads,
          .shared_bytes = C::kSharedBytes,
          .cluster = params.product.cluster},
         stream, params);
}

template <class Weight, int kTokens>
void launch_batch_product(const BatchParams& params, unsigned blocks, ops::Stream& stream) {
  if constexpr (kMayBeAlone<Weight> && kTokens > 32) {
    if (params.alone)
      return start_batch_product<BatchConfig<Weight, kTokens, true>>(params, blocks, stream);
  }
  start_batch_product<BatchConfig<Weight, kTokens, false>>(params, blocks, stream);
}

// Others take 128 columns for 65 to 96 tokens, pairs their tiles of 64.
template <class Weight>
inline constexpr bool kTakes96 =
    std::is_same_v<Weight, tensor::Bf16> || std::is_same_v<Weight, tensor::F8E4M3>;

template <class Weight>
void launch_batch_product(const BatchParams& params, unsigned blocks, ops::Stream& stream) {
  if constexpr (kTakes96<Weight>) {
    if (params.box == 96) return launch_batch_product<Weight, 96>(params, blocks, stream);
  }
  switch (params.box) {
    case 32:
      return launch_batch_product<Weight, 32>(params, blocks, stream);
    case 64:
      return launch_batch_product<Weight, 64>(params, blocks, stream);
    default:
      return launch_batch_product<Weight, 128>(params, blocks, stream);
  }
}

}  // namespace fathom::cuda
