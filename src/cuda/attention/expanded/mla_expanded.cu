// Expanded attention for heads of 128 + 64 (keys) and 128 (values). Bound by the tensor cores: 640 operations for
// two bf16 values of each of K and V, which 128 queries share.
//
// A block takes 128 queries of a head and goes through the keys 128 at a time. A producer warp has the copy engine
// fill two stages each of keys and values; two warpgroups have 64 queries each, their values and weights in registers.
// A warpgroup starts the products of the next tile's scores and of this one's values together and computes the next
// softmax while the values are summed. Tiles behind the last visible key are left out: one that a query does not see
// leaves its state's bits alone. Blocks with the most keys start first.
//
// Queries that keep some of their rows (kHasKept) have a bit of each: a lane's of a tile are one word.
//
// Grid: heads of a group x query tiles x groups, so that blocks that run together have few heads and many queries and
// read most keys and values from the L2 cache. Shared memory: 208 KB.

#include <numeric>

#include "cuda/attention/expanded/mla_expanded.cuh"
#include "cuda/device/quad.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/gemm/tensor_map.h"
#include "cuda/mma/panels.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kNope = 128, kRope = 64, kKey = kNope + kRope, kValue = 128;
constexpr int kGroups = 2, kThreads = kGroups * 128;  // of the warpgroups that compute
constexpr int kProducerRegisters = 24, kRegisters = 240;
constexpr int kTileKeys = 128, kStages = 2;
constexpr int kGroupHeads = 16;                          // that run together at most
constexpr int kPanelBytes = kTileKeys * kPanelRowBytes;  // 64 values of each key, or query
constexpr int kKeyPanels = kKey / 64, kValuePanels = kValue / 64;
constexpr int kKeyBytes = kKeyPanels * kPanelBytes, kValueBytes = kValuePanels * kPanelBytes;
static_assert(kGroups * 64 == kFastExpandedQueries && kFastExpandedQueries == kTileKeys);

struct Shared {
  static constexpr int kQueries = 0;
  static constexpr int kKeys = kKeyBytes;
  static constexpr int kValues = kKeys + kStages * kKeyBytes;
  static constexpr int kBarriers = kValues + kStages * kValueBytes;
  static constexpr int kBytes = kBarriers + (1 + 4 * kStages) * 8;
};
static_assert(Shared::kBytes <= 227 * 1024);

// Addresses of what a tile of keys uses; tile t is the t-th of the block.
struct Turn {
  uint32_t shared;
  int tile;

  __device__ __forceinline__ int stage() const { return tile % kStages; }
  __device__ __forceinline__ uint32_t phase() const { return tile / kStages & 1; }
  __device__ __forceinline__ uint32_t keys() const {
    return shared + Shared::kKeys + stage() * kKeyBytes;
  }
  __device__ __forceinline__ uint32_t values() const {
    return shared + Shared::kValues + stage() * kValueBytes;
  }
  __device__ __forceinline__ uint32_t barrier(int kind) const {
    return shared + Shared::kBarriers + (1 + kind * kStages + stage()) * 8;
  }
  __device__ __forceinline__ uint32_t keys_full() const { return barrier(0); }
  __device__ __forceinline__ uint32_t values_full() const { return barrier(1); }
  __device__ __forceinline__ uint32_t keys_empty() const { return barrier(2); }
  __device__ __forceinline__ uint32_t values_empty() const { return barrier(3); }
  __device__ __forceinline__ uint32_t queries_full() const { return shared + Shared::kBarriers; }
};

// Of the block; groups come one after the other.
__device__ __forceinline__ int head_of_block() {
  return static_cast<int>(blockIdx.z * gridDim.x + blockIdx.x);
}

struct ExpandedMaps {
  CUtensorMap q, kv, k_rope;  // rows of all heads side by side; boxes of 64 columns and 128 rows
};

// One thread. Rows behind the segment's end may be anything: nobody sees them, and values that are no numbers are
// taken out before they are multiplied.
__device__ __forceinline__ void produce(const ExpandedMaps& maps, const ExpandedBlock& block,
                                        int end, uint32_t shared) {
  const int head = head_of_block();
  const int first_query = static_cast<int>(block.segment->token_begin) + block.first_query;
  const int first_key = static_cast<int>(block.segment->buffer_begin);
  const int kv_column = head * (kNope + kValue);
  Turn turn{shared, 0};
  barrier_expect(turn.queries_full(), kKeyBytes);
#pragma unroll
  for (int panel = 0; panel < kKeyPanels; ++panel)
    load_tile(&maps.q, shared + Shared::kQueries + panel * kPanelBytes, turn.queries_full(),
              head * kKey + panel * 64, first_query);
  for (int key = 0; key < end; key += kTileKeys, ++turn.tile) {
    const int row = first_key + key;
    barrier_wait(turn.keys_empty(), turn.phase() ^ 1);
    barrier_expect(turn.keys_full(), kKeyBytes);
#pragma unroll
    for (int panel = 0; panel < kNope / 64; ++panel)
      load_tile(&maps.kv, turn.keys() + panel * kPanelBytes, turn.keys_full(),
                kv_column + panel * 64, row);
    load_tile(&maps.k_rope, turn.keys() + kNope / 64 * kPanelBytes, turn.keys_full(), 0, row);
    barrier_wait(turn.values_empty(), turn.phase() ^ 1);
    barrier_expect(turn.values_full(), kValueBytes);
#pragma unroll
    for (int panel = 0; panel < kValuePanels; ++panel)
      load_tile(&maps.kv, turn.values() + panel * kPanelBytes, turn.values_full(),
                kv_column + kNope + panel * 64, row);
  }
}

// The warpgroups that compute wait for each other; the producer does not take part.
__device__ __forceinline__ void meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}
__device__ __forceinline__ bool meet_or(bool condition) {
  int any;
  asm volatile(
      "{\n.reg .pred mine, any;\nsetp.ne.b32 mine, %1, 0;\n"
      "barrier.cta.red.or.pred any, 1, %2, mine;\nselp.b32 %0, 1, 0, any;\n}\n"
      : "=r"(any)
      : "r"(static_cast<int>(condition)), "n"(kThreads)
      : "memory");
  return any != 0;
}

// A warp's 16 queries: thread rows g and g + 8.
struct WarpQueries {
  float acc[kValue / 8][4];
  uint32_t weights[kTileKeys / 16][4];  // as a product's operand
  float max[2], sum[2];                 // sum: this thread's keys, the state's in one of four
  int query[2];                         // of the segment
  uint64_t mask[2];
  const uint32_t* kept[2];  // the lane's words, one of each tile; null: all that is visible

  __device__ __forceinline__ int64_t state(const ExpandedParams& p,
                                           const ops::ExpandedSegment& segment, int half) const {
    return (segment.token_begin + query[half]) * p.heads + head_of_block();
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
      kept[half] = exists ? block.kept(p, query[half]) : nullptr;
      if (kept[half] != nullptr) kept[half] += t;
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

  // 16 bytes a lane. All lanes of a warp call it.
  __device__ __forceinline__ void store_output(const ExpandedParams& p,
                                               const ops::ExpandedSegment& segment,
                                               int half) const {
    const bool exists = query[half] < segment.num_tokens;
    Bf16* const row = p.out + (exists ? state(p, segment, half) : 0) * kValue;
#pragma unroll
    for (int n = 0; n < kValue / 8; n += 4) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = floats_to_bf16x2(acc[n + i][half * 2] / sum[half],
                                    acc[n + i][half * 2 + 1] / sum[half]);
      transpose_quad(words);
      if (exists)
        *reinterpret_cast<uint4*>(row + (n + threadIdx.x % 4) * 8) = {words[0], words[1], words[2],
                                                                      words[3]};
    }
  }

  __device__ __forceinline__ void store(const ExpandedParams& p,
                                        const ops::ExpandedSegment& segment) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
      if (segment.last) {
        store_output(p, segment, half);
        continue;
      }
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

  // Starts products; the four warps of a warpgroup call it together, add_values() too.
  __device__ __forceinline__ void score(const Turn& turn, float (&scores)[16][4]) const {
    const uint32_t queries =
        turn.shared + Shared::kQueries + static_cast<int>(threadIdx.x) / 128 * 64 * kPanelRowBytes;
#pragma unroll
    for (int step = 0; step < kKey / 16; ++step) {
      const int at = step / 4 * kPanelBytes + step % 4 * 32;
      score_product(scores, panel_operand(queries + at, 0), panel_operand(turn.keys() + at, 0),
                    step > 0);
    }
    commit_products();
  }
  __device__ __forceinline__ void add_values(const Turn& turn) {
#pragma unroll
    for (int step = 0; step < kTileKeys / 16; ++step)
      value_product(acc, weights[step],
                    panel_operand(turn.values() + step * 16 * kPanelRowBytes, kPanelBytes), true);
    commit_products();
  }

  __device__ __forceinline__ bool sees(const ExpandedBlock& block, int half, int key) const {
    return key < block.end(query[half]) && block.is_visible(query[half], mask[half], key);
  }
  __device__ __forceinline__ void hide(const ExpandedBlock& block, int first_key,
                                       float (&scores)[16][4]) const {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int four = 0; four < 4; ++four) {
      uint32_t seen[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        seen[half] = block.visible_keys(query[half], mask[half], first_key + four * 32) >> (2 * t);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if ((seen[i / 2] >> (n * 8 + i % 2) & 1) == 0) scores[four * 4 + n][i] = minus_infinity();
        }
      }
    }
  }

  // Of a tile, asked for before its scores are there.
  __device__ __forceinline__ uint2 kept_keys(int tile) const {
    constexpr int kWords = kTileKeys / 32;
    return {kept[0] == nullptr ? ~0u : kept[0][tile * kWords],
            kept[1] == nullptr ? ~0u : kept[1][tile * kWords]};
  }
  __device__ __forceinline__ static void leave_out(const uint2& kept_keys, float (&scores)[16][4]) {
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t of_half = i < 2 ? kept_keys.x : kept_keys.y;
        if ((of_half >> (2 * n + i % 2) & 1) == 0) scores[n][i] = minus_infinity();
      }
    }
  }

  // Scores to weights in place; `factor` brings what was summed before to the new maximum.
  __device__ __forceinline__ void softmax(float scale, float (&scores)[16][4], float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = minus_infinity();
#pragma unroll
      for (int n = 0; n < 16; ++n)
        most = fmaxf(most, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float new_max = fmaxf(max[half], most * scale), from = finite_max(new_max);
      factor[half] = exp2_fast(max[half] - from);
      max[half] = new_max;
      float added = 0.0f;
#pragma unroll
      for (int n = 0; n < 16; ++n) {
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          scores[n][i] = exp2_fast(__fmaf_rn(scores[n][i], scale, -from));
          added += scores[n][i];
        }
      }
      sum[half] = __fmaf_rn(sum[half], factor[half], added);
    }
  }

  // When no product is under way.
  __device__ __forceinline__ void take_weights(const float (&scores)[16][4],
                                               const float (&factor)[2]) {
#pragma unroll
    for (int step = 0; step < kTileKeys / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[step][i] = floats_to_bf16x2(scores[2 * step + i / 2][i % 2 * 2],
                                            scores[2 * step + i / 2][i % 2 * 2 + 1]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (__all_sync(0xffffffffu, factor[half] == 1.0f)) continue;
#pragma unroll
      for (int n = 0; n < kValue / 8; ++n) {
        acc[n][half * 2] *= factor[half];
        acc[n][half * 2 + 1] *= factor[half];
      }
    }
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

// Whether a tile has values that are no numbers. All threads that compute call it.
__device__ __forceinline__ bool has_non_finite(const char* values) {
  bool found = false;
  for (int i = threadIdx.x; i < kTileKeys * kValue / 8; i += kThreads) {
    const uint4 eight = reinterpret_cast<const uint4*>(values)[i];
    for (const uint32_t pair : {eight.x, eight.y, eight.z, eight.w})
      found |= (pair & 0x7f80u) == 0x7f80u || (pair & 0x7f800000u) == 0x7f800000u;
  }
  return meet_or(found);
}

__device__ __forceinline__ void clear_non_finite(char* values) {
  for (int i = threadIdx.x; i < kTileKeys * kValue; i += kThreads) {
    auto& word = reinterpret_cast<uint16_t*>(values)[i];
    if ((word & 0x7f80u) == 0x7f80u) word = 0;
  }
}

// One warpgroup's way through the keys. Both take the same tiles.
template <bool kHasKept>
struct Consumer {
  const ExpandedParams& p;
  const ExpandedBlock& block;
  char* const shared;
  int end, full_end, warp_full_end;  // full_end: of all queries of the block

  // A warp is done with a stage.
  __device__ __forceinline__ static void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
  }

  // A tile's values are there, and finite.
  __device__ __forceinline__ void prepare_values(const Turn& turn, WarpQueries& queries) const {
    barrier_wait(turn.values_full(), turn.phase());
    const int key = turn.tile * kTileKeys;
    char* const values = shared + Shared::kValues + turn.stage() * kValueBytes;
    if (key + kTileKeys <= full_end || !has_non_finite(values)) return;
    queries.add_non_finite(block, key, values);
    meet();
    clear_non_finite(values);
    publish_to_products();
    meet();
  }

  __device__ __forceinline__ void weigh(const Turn& turn, const uint2& kept, WarpQueries& queries,
                                        float (&scores)[16][4], float (&factor)[2]) const {
    const int key = turn.tile * kTileKeys;
    if constexpr (kHasKept) WarpQueries::leave_out(kept, scores);
    if (key + kTileKeys > warp_full_end) queries.hide(block, key, scores);
    queries.softmax(p.scale, scores, factor);
  }

  __device__ __forceinline__ void run(WarpQueries& queries) const {
    float scores[16][4], factor[2];
    uint2 kept{};
    Turn turn{shared_address(shared), 0};
    if constexpr (kHasKept) kept = queries.kept_keys(0);
    barrier_wait(turn.queries_full(), 0);
    barrier_wait(turn.keys_full(), 0);
    begin_products();
    queries.score(turn, scores);
    wait_products<0>(scores);
    release(turn.keys_empty());
    weigh(turn, kept, queries, scores, factor);
    queries.take_weights(scores, factor);
#pragma unroll 1
    for (const int tiles = (end + kTileKeys - 1) / kTileKeys; turn.tile + 1 < tiles;) {
      const Turn next{turn.shared, turn.tile + 1};
      if constexpr (kHasKept) kept = queries.kept_keys(next.tile);
      barrier_wait(next.keys_full(), next.phase());
      prepare_values(turn, queries);
      begin_products();
      queries.score(next, scores);
      queries.add_values(turn);
      wait_products<1>(scores);
      release(next.keys_empty());
      weigh(next, kept, queries, scores, factor);
      wait_products<0>(queries.acc);
      keep_operand(queries.weights);
      release(turn.values_empty());
      queries.take_weights(scores, factor);
      turn = next;
    }
    prepare_values(turn, queries);
    begin_products();
    queries.add_values(turn);
    wait_products<0>(queries.acc);
    keep_operand(queries.weights);
  }
};

__device__ __forceinline__ void init_barriers(uint32_t shared) {
  barrier_init(Turn{shared, 0}.queries_full(), 1);
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) {
    const Turn turn{shared, stage};
    barrier_init(turn.keys_full(), 1);
    barrier_init(turn.values_full(), 1);
    barrier_init(turn.keys_empty(), kThreads / 32);
    barrier_init(turn.values_empty(), kThreads / 32);
  }
  barriers_are_ready();
}

template <bool kHasKept>
__global__ void __launch_bounds__(kThreads + 128, 1)
    expanded_kernel(const __grid_constant__ ExpandedParams p,
                    const __grid_constant__ ExpandedMaps maps) {
  extern __shared__ __align__(1024) char shared[];
  let_next_start();
  const ExpandedBlock block =
      find_block(p, static_cast<int>(gridDim.y - 1 - blockIdx.y), kFastExpandedQueries);
  const ops::ExpandedSegment& segment = *block.segment;
  const int last_query = static_cast<int>(
      min(int64_t{block.first_query} + kFastExpandedQueries, segment.num_tokens) - 1);
  const int end = block.end(last_query);
  if (threadIdx.x == 0) init_barriers(shared_address(shared));
  __syncthreads();
  wait_for_previous();
  if (end == 0 && !segment.first && !segment.last) return;  // nothing changes
  if (threadIdx.x >= kThreads) {
    give_registers<kProducerRegisters>();
    if (threadIdx.x == kThreads) produce(maps, block, end, shared_address(shared));
  } else {
    take_registers<kRegisters>();
    WarpQueries queries;
    queries.load(p, block);
    const int warp_query = block.first_query + static_cast<int>(threadIdx.x) / 32 * 16;
    if (end > 0)
      Consumer<kHasKept>{
          p, block, shared, end, block.full_end(block.first_query), block.full_end(warp_query)}
          .run(queries);
    queries.store(p, segment);
  }
}

bool is_aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

Matrix queries_of(const ops::MlaExpandedArgs& args) {
  const int64_t columns = args.q.dim(1) * args.q.dim(2);
  return {.data = args.q.data(), .rows = args.q.dim(0), .columns = columns, .stride = columns};
}
Matrix rows_of(const ops::MlaExpandedArgs& args) {
  const int64_t columns = args.kv.dim(1) * args.kv.dim(2);
  return {.data = args.kv.data(), .rows = args.kv.dim(0), .columns = columns, .stride = columns};
}
Matrix rope_of(const ops::MlaExpandedArgs& args) {
  const int64_t columns = args.k_rope.dim(1);
  return {
      .data = args.k_rope.data(), .rows = args.kv.dim(0), .columns = columns, .stride = columns};
}

}  // namespace

bool has_fast_expanded(const ops::MlaExpandedArgs& args) {
  return args.q.dim(2) == kKey && args.k_rope.dim(1) == kRope && args.state_acc.dim(2) == kValue &&
         can_map(queries_of(args)) && can_map(rows_of(args)) && can_map(rope_of(args)) &&
         is_aligned(args.state_acc.data(), 8) && is_aligned(args.out.data(), 16);
}

void fast_expanded(const ExpandedParams& p, const ops::MlaExpandedArgs& args, ops::Stream& stream) {
  const ExpandedMaps maps = {.q = tensor_map(queries_of(args), kFastExpandedQueries),
                             .kv = tensor_map(rows_of(args), kTileKeys),
                             .k_rope = tensor_map(rope_of(args), kTileKeys)};
  const int group_heads = std::gcd(p.heads, kGroupHeads);
  launch(p.kept == nullptr ? expanded_kernel<false> : expanded_kernel<true>,
         {.grid = dim3(static_cast<unsigned>(group_heads),
                       static_cast<unsigned>(p.tile_end[p.num_segments - 1]),
                       static_cast<unsigned>(p.heads / group_heads)),
          .block = kThreads + 128,
          .shared_bytes = Shared::kBytes},
         stream, p, maps);
}

}  // namespace fathom::cuda
