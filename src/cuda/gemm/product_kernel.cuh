#pragma once
// The kernel of product.h. Bound by the tensor cores: 2 * rows * n * k operations.
//
// Persistent: clusters of two blocks walk over pairs of tiles that share their rows and are neighbours in n, or, where
// many rows are gathered, share their columns and are neighbours in m. Experts' tiles do not take equally long and are
// handed out. A block has one warpgroup that feeds a ring of stages in shared memory (half of what is shared goes to
// both blocks) and two that multiply, each 64 rows of every 128. Grid: all multiprocessors. Shared memory: 192 KB of
// stages, each kBlockM + kBlockN rows of 128 bytes: 64 bf16 or 128 e4m3 or int8 of k; 16 or 32 KB for rows on their way
// out.
// Order of sums: k rises, for f8, i4 and i8 with scales of blocks in blocks of 128 whose sums are scaled and added in
// float32; i8 with scales of channels is summed as integers and scaled at the end. So the bits of a row depend on
// nothing but the row and the weight.

#include "cuda/gemm/product_expand.cuh"
#include "cuda/gemm/product_feed.cuh"
#include "cuda/gemm/product_queue.cuh"
#include "cuda/gemm/product_store.cuh"
#include "cuda/gemm/product_tile.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace fathom::cuda {

// This warp does not read the stage any more.
__device__ __forceinline__ void release(uint32_t empty) {
  const uint32_t lane = threadIdx.x % 32;
  if (lane < kClusterBlocks) barrier_arrive_at(empty, lane);
}

// A warpgroup's operands in the first stage, as words of descriptors.
template <class C>
struct Operands {
  uint32_t a, b;

  __device__ __forceinline__ explicit Operands(const Ring<C>& ring)
      : a(kept(descriptor_word(ring.base + first_row_of_warpgroup() * C::kRowBytes))),
        b(kept(descriptor_word(ring.base + C::kABytes))) {}
};

template <class C, int kSums>
__device__ __forceinline__ void multiply_stage(const Operands<C>& operands, int stage,
                                               int rows_before, int columns_before, bool add,
                                               typename C::Sum (&sums)[kSums]) {
  const uint32_t a = operands.a + (stage * C::kStageBytes + rows_before * C::kRowBytes) / 16;
  const uint32_t b = operands.b + (stage * C::kStageBytes + columns_before * C::kRowBytes) / 16;
  mma_begin(sums);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    mma(sums, descriptor(a + i * kStepOfK), descriptor(b + i * kStepOfK), add || i > 0,
        typename C::Element{});
  mma_commit();
}

// A warpgroup without rows leaves the tensor cores to the other one.
template <class C>
__device__ __forceinline__ void skip_tile(const TiledParams& p, Ring<C>& ring) {
  for (int k = 0; k < p.num_steps; ++k, ring.advance()) {
    barrier_wait(ring.full(), ring.phase);
    release(ring.empty());
  }
}

// One sum over all of k; a stage's products run while the next stage's are started. read_last(scales) still finds the
// scales of the last one.
template <class C, class ReadLast>
__device__ __forceinline__ void multiply(const TiledParams& p, Ring<C>& ring,
                                         typename C::Sum (&sums)[C::kSums],
                                         const ReadLast& read_last) {
  const Operands<C> operands(ring);
  uint32_t used = 0, scales = 0;
  for (int k = 0; k < p.num_steps; ++k) {
    wait_full(ring);
    multiply_stage(operands, ring.stage, 0, 0, k > 0, sums);
    mma_wait<1>(sums);
    if (k > 0) release(used);
    used = ring.empty();
    scales = ring.scales();
    ring.advance();
  }
  mma_wait<0>(sums);
  read_last(scales);
  release(used);
}

// i8 with scales of channels, every operation rounded.
template <class C>
__device__ __forceinline__ void scale_integers(uint32_t scales, const int (&sums)[C::kSums],
                                               float (&out)[C::kSums]) {
  const float upper = load_shared(scales + local_row(0) * 4);
  const float lower = load_shared(scales + local_row(1) * 4);
  const uint32_t columns = scales + (C::kBlockM + threadIdx.x % 4 * 2) * 4;
#pragma unroll
  for (int i = 0; i < C::kSums; i += 4) {
    const float2 column = load_shared_2(columns + i * 2 * 4);
    out[i] = __fmul_rn(__int2float_rn(sums[i]), __fmul_rn(upper, column.x));
    out[i + 1] = __fmul_rn(__int2float_rn(sums[i + 1]), __fmul_rn(upper, column.y));
    out[i + 2] = __fmul_rn(__int2float_rn(sums[i + 2]), __fmul_rn(lower, column.x));
    out[i + 3] = __fmul_rn(__int2float_rn(sums[i + 3]), __fmul_rn(lower, column.y));
  }
}

template <class Sum, int kSums>
__device__ __forceinline__ void add_scaled(float (&totals)[kSums], const Sum (&sums)[kSums],
                                           float upper, float lower) {
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    totals[i] += static_cast<float>(sums[i]) * upper;
    totals[i + 1] += static_cast<float>(sums[i + 1]) * upper;
    totals[i + 2] += static_cast<float>(sums[i + 2]) * lower;
    totals[i + 3] += static_cast<float>(sums[i + 3]) * lower;
  }
}
// The same with a scale for each column, in shared memory: `columns` are those from this thread's first one on.
template <int kSums>
__device__ __forceinline__ void add_scaled_columns(float (&totals)[kSums],
                                                   const float (&sums)[kSums], float upper,
                                                   float lower, uint32_t columns) {
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    const float2 column = load_shared_2(columns + i * 2 * 4);
    totals[i] += sums[i] * (upper * column.x);
    totals[i + 1] += sums[i + 1] * (upper * column.y);
    totals[i + 2] += sums[i + 2] * (lower * column.x);
    totals[i + 3] += sums[i + 3] * (lower * column.y);
  }
}

// The warpgroups start their products in turn, the first one first. Left alone they fall into step: the tensor cores
// serve both at once, both finish together, and nothing is multiplied while both scale.
class Turns {
 public:
  __device__ Turns() : warpgroup_(static_cast<int>(threadIdx.x) / kWarpgroup - 1) {
    if (warpgroup_ == 1) pass();
  }
  __device__ void wait() const { named_barrier_sync(1 + warpgroup_, 2 * kWarpgroup); }
  __device__ void pass() const { named_barrier_arrive(2 - warpgroup_, 2 * kWarpgroup); }
  // After the last tile: no barrier is left half full.
  __device__ void end() const {
    if (warpgroup_ == 0) wait();
  }

 private:
  int warpgroup_;
};

// The sums of 128 of k are scaled and added to the totals, while the other warpgroup multiplies, unless this one is
// alone.
template <class C, bool kAlone, int kSums>
__device__ __forceinline__ void multiply_scaled(int num_steps, Ring<C>& ring, const Turns& turns,
                                                float (&totals)[C::kWaves][kSums]) {
  const Operands<C> operands(ring);
  const uint32_t first_scale = kept(local_row(0) * 4);
  typename C::Sum sums[kSums];
#pragma unroll
  for (int w = 0; w < C::kWaves; ++w) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) totals[w][i] = 0;
  }
  for (int k = 0; k < num_steps; ++k) {
    wait_full(ring);
    float upper[C::kWavesM], lower[C::kWavesM], column[C::kWavesN];
    const uint32_t column_scales = ring.scales() + C::kBlockM * 4;
    constexpr float kUnit = kIsI4<typename C::Weight> ? kPairScale : 1.0f;
#pragma unroll
    for (int m = 0; m < C::kWavesM; ++m) {
      upper[m] = kUnit * load_shared(ring.scales() + first_scale + m * 128 * 4);
      lower[m] = kUnit * load_shared(ring.scales() + first_scale + (m * 128 + 8) * 4);
    }
#pragma unroll
    for (int n = 0; n < C::kWavesN && !C::kColumnScales; ++n)
      column[n] = load_shared(column_scales + n * 4);
#pragma unroll
    for (int w = 0; w < C::kWaves; ++w) {
      const int m = w / C::kWavesN, n = w % C::kWavesN;
      if constexpr (!kAlone) turns.wait();
      multiply_stage(operands, ring.stage, m * 128, n * 128, false, sums);
      if constexpr (!kAlone) turns.pass();
      mma_wait<0>(sums);
      if (w == C::kWaves - 1) release(ring.empty());
      if constexpr (C::kColumnScales) {
        add_scaled_columns(totals[w], sums, upper[m], lower[m],
                           column_scales + (n * 128 + threadIdx.x % 4 * 2) * 4);
      } else {
        add_scaled(totals[w], sums, upper[m] * column[n], lower[m] * column[n]);
      }
    }
    ring.advance();
  }
}

template <class C>
__device__ __forceinline__ void store_tile(const TiledParams& p, const Tile& tile, Boxes<C>& boxes,
                                           const float (&totals)[C::kWaves][C::kSums]) {
  if constexpr (C::kGathers && C::kScalesBlocks) {
    store_gated_quantised<C>(p, tile, totals[0], totals[1]);
  } else if constexpr (C::kGathers) {
    store_gated(p, tile, boxes, totals[0]);
  } else if constexpr (C::kWavesN == 2) {
    Tile right = tile;
    right.column += 128;
    store(p, tile, 0, boxes, totals[0]);
    store(p, right, 0, boxes, totals[1]);
  } else {
#pragma unroll
    for (int w = 0; w < C::kWaves; ++w) store(p, tile, w, boxes, totals[w]);
  }
}

template <class C>
__device__ __forceinline__ void work(const TiledParams& p, uint32_t shared) {
  Ring<C> ring(shared);
  Boxes<C> boxes(shared);
  const Turns turns;
  float totals[C::kWaves][C::kSums];
  for_each_tile<C>(p, shared, [&](const Tile& tile, Queue<C>&) {
    if (first_row_of_warpgroup() >= tile.num_rows) return skip_tile(p, ring);
    if constexpr (C::kHasNarrow) {
      if (tile.is_narrow) {
        float half[1][C::kSums / 2];
        multiply_scaled<C, true>(p.num_steps, ring, turns, half);
        return store(p, tile, 0, boxes, half[0]);
      }
    }
    if constexpr (C::kScalesBlocks) {
      if (tile.num_rows <= 64) {
        multiply_scaled<C, true>(p.num_steps, ring, turns, totals);
      } else {
        multiply_scaled<C, false>(p.num_steps, ring, turns, totals);
      }
    } else if constexpr (C::kScalesEnd) {
      int sums[C::kSums];
      multiply(p, ring, sums, [&](uint32_t scales) { scale_integers<C>(scales, sums, totals[0]); });
    } else {
      multiply(p, ring, totals[0], [](uint32_t) {});
    }
    store_tile<C>(p, tile, boxes, totals);
  });
  turns.end();
  wait_stores();
}

// What a thread has after the roles have parted. A block starts with 168 a thread; taking more than the other role gave
// would wait for ever.
template <class C>
constexpr int kFeedingRegisters = !C::kExpands       ? 40
                                  : C::kScalesBlocks ? 56
                                                     : 104;
template <class C>
constexpr int kMultiplyingRegisters = (3 * 168 - kFeedingRegisters<C>) / 2;

template <class C>
__global__ void __launch_bounds__(kTiledThreads, 1)
    tiled_kernel(const __grid_constant__ TiledParams p) {
  extern __shared__ __align__(1024) uint8_t stages[];
  // Kept in a register: the compiler would ask for it anew at every use, which takes long.
  const uint32_t shared = kept(shared_address(stages));
  if (threadIdx.x == 0) {
    prefetch_map(&p.a);
    prefetch_map(&p.b);
    if constexpr (C::kHasQueue) Queue<C>(shared).init();
    init_barriers<C>(shared);
  }
  cluster_sync_parted();
  if (!C::kAllFeed && threadIdx.x == 0) feed_early<C>(p, shared);
  wait_for_previous();
  let_next_start();  // what this kernel waited for may be read before its end, then
  if (threadIdx.x < kWarpgroup) {
    give_registers<kFeedingRegisters<C>>();
    if constexpr (C::kExpands) {
      feed_expanded<C>(p, shared);
    } else if constexpr (C::kGathers) {
      feed_gathered<C>(p, shared);
    } else {
      if (threadIdx.x == 0) feed<C>(p, shared);
      if constexpr (C::kHasScales) {
        if (threadIdx.x / 32 - 1 < kScaleThreads / 32)
          feed_scales<C>(p, shared, static_cast<int>(threadIdx.x) - 32);
      }
    }
  } else {
    take_registers<kMultiplyingRegisters<C>>();
    work<C>(p, shared);
  }
  cluster_sync_parted();  // the other block may still send to this one
}

}  // namespace fathom::cuda
