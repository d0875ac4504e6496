// Expanded attention for heads of 128 + 64 (keys) and 128 (values). Bound by the tensor cores: 640 operations for
// two bf16 values of each of K and V, which 128 queries share.
//
// A block takes 128 queries of a head, 64 a warpgroup, with their values in registers, and goes through the keys 64 at a
// time, double-buffered by asynchronous copies. Tiles behind the last visible key are left out: one that a query does
// not see leaves its state's bits alone. Blocks with the most keys start first.
//
// Grid: heads x query tiles. Shared memory: 80 KB.

#include "cuda/attention/mla_expanded.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/attention/warpgroup.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/pdl.cuh"
#include "cuda/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kNope = 128, kRope = 64, kKey = kNope + kRope, kValue = 128;
constexpr int kThreads = 256, kTileKeys = 64;
constexpr int kPanelBytes = kTileKeys * kPanelRowBytes;  // 64 values of each key
constexpr int kValues = kKey / 64 * kPanelBytes;
constexpr int kStageBytes = kValues + kValue / 64 * kPanelBytes;
static_assert(kThreads / 32 * 16 == kFastExpandedQueries);

__device__ __forceinline__ void load_tile(const ExpandedParams& p,
                                          const ops::ExpandedSegment& segment, int first_key,
                                          uint32_t stage) {
  constexpr int kRowThreads = 8;  // one for each vector of a panel's row
  const int row = threadIdx.x / kRowThreads, vector = threadIdx.x % kRowThreads;
#pragma unroll
  for (int key = row; key < kTileKeys; key += kThreads / kRowThreads) {
    const bool valid = first_key + key < segment.num_rows;
    const int64_t at = segment.buffer_begin + (valid ? first_key + key : 0);
    const Bf16* const kv = p.kv + (at * p.heads + blockIdx.x) * (kNope + kValue) + vector * 8;
    const uint32_t to = stage + panel_offset(key, vector);
#pragma unroll
    for (int panel = 0; panel < kNope / 64; ++panel)
      copy_async_16(to + panel * kPanelBytes, kv + panel * 64, valid);
    copy_async_16(to + kNope / 64 * kPanelBytes, p.k_rope + at * kRope + vector * 8, valid);
#pragma unroll
    for (int panel = 0; panel < kValue / 64; ++panel)
      copy_async_16(to + kValues + panel * kPanelBytes, kv + kNope + panel * 64, valid);
  }
}

// A warp's 16 queries: thread rows g and g + 8.
struct WarpQueries {
  uint32_t fragments[kKey / 16][4];
  float acc[kValue / 8][4];
  float max[2], sum[2];  // sum: this thread's keys, the state's in one of four
  int query[2];          // of the segment
  uint64_t mask[2];

  __device__ __forceinline__ int64_t state(const ExpandedParams& p,
                                           const ops::ExpandedSegment& segment, int half) const {
    return (segment.token_begin + query[half]) * p.heads + blockIdx.x;
  }

  __device__ __forceinline__ void load(const ExpandedParams& p, const ExpandedBlock& block) {
    const ops::ExpandedSegment& segment = *block.segment;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      query[half] = block.first_query + warp * 16 + half * 8 + g;
      const bool exists = query[half] < segment.num_tokens;
      const int64_t at = exists ? state(p, segment, half) : 0;
      mask[half] =
          exists && segment.has_tree_mask ? p.tree_mask[segment.token_begin + query[half]] : 0;
#pragma unroll
      for (int step = 0; step < kKey / 16; ++step) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          fragments[step][half + 2 * i] =
              exists
                  ? *reinterpret_cast<const uint32_t*>(p.q + at * kKey + step * 16 + i * 8 + 2 * t)
                  : 0;
      }
      const bool goes_on = exists && !segment.first;
      max[half] = goes_on ? p.state_max[at] : minus_infinity();
      sum[half] = goes_on && t == 0 ? p.state_sum[at] : 0.0f;
#pragma unroll
      for (int n = 0; n < kValue / 8; ++n) {
        const float2 v =
            goes_on ? *reinterpret_cast<const float2*>(p.state_acc + at * kValue + n * 8 + 2 * t)
                    : float2{0.0f, 0.0f};
        acc[n][half * 2] = v.x;
        acc[n][half * 2 + 1] = v.y;
      }
    }
  }

  __device__ __forceinline__ void store(const ExpandedParams& p,
                                        const ops::ExpandedSegment& segment) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
      if (query[half] >= segment.num_tokens) continue;
      const int64_t at = state(p, segment, half);
      if (t == 0) {
        p.state_max[at] = max[half];
        p.state_sum[at] = sum[half];
      }
#pragma unroll
      for (int n = 0; n < kValue / 8; ++n)
        *reinterpret_cast<float2*>(p.state_acc + at * kValue + n * 8 + 2 * t) = {
            acc[n][half * 2], acc[n][half * 2 + 1]};
    }
  }

  // The four warps of a warpgroup call it together, add_values() too.
  __device__ __forceinline__ void score(uint32_t stage, float (&scores)[8][4]) const {
    begin_products();
#pragma unroll
    for (int step = 0; step < kKey / 16; ++step)
      score_product(scores, fragments[step],
                    panel_operand(stage + step / 4 * kPanelBytes + step % 4 * 32, 0), step > 0);
    commit_products();
    wait_products(scores);
  }

  __device__ __forceinline__ bool sees(const ExpandedBlock& block, int half, int key) const {
    return key < block.end(query[half]) && block.is_visible(query[half], mask[half], key);
  }
  __device__ __forceinline__ void hide(const ExpandedBlock& block, int first_key,
                                       float (&scores)[8][4]) const {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!sees(block, i / 2, first_key + n * 8 + 2 * t + i % 2)) scores[n][i] = minus_infinity();
      }
    }
  }

  // Scores to weights; what was summed so far is brought to the new maximum.
  __device__ __forceinline__ void softmax(float scale, float (&scores)[8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = minus_infinity();
#pragma unroll
      for (int n = 0; n < 8; ++n)
        most = fmaxf(most, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float new_max = fmaxf(max[half], most * scale), from = finite_max(new_max);
      const float factor = exp2_fast(max[half] - from);
      max[half] = new_max;
      float added = 0.0f;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          scores[n][i] = exp2_fast(__fmaf_rn(scores[n][i], scale, -from));
          added += scores[n][i];
        }
      }
      sum[half] = __fmaf_rn(sum[half], factor, added);
      if (__all_sync(0xffffffffu, factor == 1.0f)) continue;
#pragma unroll
      for (int n = 0; n < kValue / 8; ++n) {
        acc[n][half * 2] *= factor;
        acc[n][half * 2 + 1] *= factor;
      }
    }
  }

  __device__ __forceinline__ void add_values(uint32_t stage, const float (&weights)[8][4]) {
    uint32_t a[kTileKeys / 16][4];
#pragma unroll
    for (int step = 0; step < kTileKeys / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[step][i] = floats_to_bf16x2(weights[2 * step + i / 2][i % 2 * 2],
                                      weights[2 * step + i / 2][i % 2 * 2 + 1]);
    }
    begin_products();
#pragma unroll
    for (int step = 0; step < kTileKeys / 16; ++step)
      value_product(acc, a[step],
                    panel_operand(stage + kValues + step * 16 * kPanelRowBytes, kPanelBytes), true);
    commit_products();
    wait_products(acc);
  }

  // Values that are no numbers: those that see them get them here, and nobody as a product with 0.
  __device__ __forceinline__ void add_non_finite(const ExpandedBlock& block, int first_key,
                                                 const char* values) {
    const int t = threadIdx.x % 4;
#pragma unroll 1
    for (int key = 0; key < kTileKeys; ++key) {
      const bool seen[2] = {sees(block, 0, first_key + key), sees(block, 1, first_key + key)};
#pragma unroll
      for (int n = 0; n < kValue / 8; ++n) {
        const auto* const eight =
            reinterpret_cast<const Bf16*>(values + n / 8 * kPanelBytes + panel_offset(key, n % 8));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float v = cuda::to_float(eight[2 * t + i % 2]);
          if (!isfinite(v) && seen[i / 2]) acc[n][i] += v;
        }
      }
    }
  }
};

// Whether a tile has values that are no numbers. All threads call it.
__device__ __forceinline__ bool has_non_finite(const char* values) {
  bool found = false;
  for (int i = threadIdx.x; i < kTileKeys * kValue / 2; i += kThreads) {
    const uint32_t pair = reinterpret_cast<const uint32_t*>(values)[i];
    found |= (pair & 0x7f80u) == 0x7f80u || (pair & 0x7f800000u) == 0x7f800000u;
  }
  return __syncthreads_or(found) != 0;
}

__device__ __forceinline__ void clear_non_finite(char* values) {
  for (int i = threadIdx.x; i < kTileKeys * kValue; i += kThreads) {
    auto& word = reinterpret_cast<uint16_t*>(values)[i];
    if ((word & 0x7f80u) == 0x7f80u) word = 0;
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    expanded_kernel(const __grid_constant__ ExpandedParams p) {
  extern __shared__ __align__(1024) char shared[];
  let_next_start();
  wait_for_previous();
  const ExpandedBlock block =
      find_block(p, static_cast<int>(gridDim.y - 1 - blockIdx.y), kFastExpandedQueries);
  const ops::ExpandedSegment& segment = *block.segment;
  const int last_query = static_cast<int>(
      min(int64_t{block.first_query} + kFastExpandedQueries, segment.num_tokens) - 1);
  const int end = block.end(last_query), full_end = block.full_end(block.first_query);
  if (end == 0 && !segment.first) return;
  if (end > 0) load_tile(p, segment, 0, shared_address(shared));
  commit_copies();
  WarpQueries queries;
  queries.load(p, block);
  // All warps of a warpgroup go through the same tiles.
  const int group_query = block.first_query + static_cast<int>(threadIdx.x) / 128 * 64;
  const int group_end = group_query > last_query ? 0 : block.end(min(group_query + 63, last_query));
  const int warp_full_end =
      block.full_end(block.first_query + static_cast<int>(threadIdx.x) / 32 * 16);
  int stage_idx = 0;
  for (int key = 0; key < end; key += kTileKeys, stage_idx ^= 1) {
    char* const stage = shared + stage_idx * kStageBytes;
    wait_copies<0>();
    publish_to_products();
    __syncthreads();  // the tile is there, and the one before it is done with
    if (key + kTileKeys < end)
      load_tile(p, segment, key + kTileKeys,
                shared_address(shared) + (stage_idx ^ 1) * kStageBytes);
    commit_copies();
    if (key + kTileKeys > full_end && has_non_finite(stage + kValues)) {
      queries.add_non_finite(block, key, stage + kValues);
      __syncthreads();
      clear_non_finite(stage + kValues);
      publish_to_products();
      __syncthreads();
    }
    if (key >= group_end) continue;
    float scores[8][4];
    queries.score(shared_address(stage), scores);
    if (key + kTileKeys > warp_full_end) queries.hide(block, key, scores);
    queries.softmax(p.scale, scores);
    queries.add_values(shared_address(stage), scores);
  }
  queries.store(p, segment);
}

bool is_aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

bool has_fast_expanded(const ops::MlaExpandedArgs& args) {
  return args.q.dim(2) == kKey && args.k_rope.dim(1) == kRope && args.state_acc.dim(2) == kValue &&
         is_aligned(args.q.data(), 4) && is_aligned(args.kv.data(), 16) &&
         is_aligned(args.k_rope.data(), 16) && is_aligned(args.state_acc.data(), 8);
}

void fast_expanded(const ExpandedParams& p, ops::Stream& stream) {
  launch(expanded_kernel,
         {.grid = dim3(static_cast<unsigned>(p.heads),
                       static_cast<unsigned>(p.tile_end[p.num_segments - 1])),
          .block = kThreads,
          .shared_bytes = 2 * kStageBytes},
         stream, p);
}

}  // namespace fathom::cuda
