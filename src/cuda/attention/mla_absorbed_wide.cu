// Absorbed attention of models with more than 16 heads on a GPU, over rows of 512 + 64 values: bound by the tensor
// cores, which 64 query rows keep busy 1088 * 2 * 64 operations for each row of 1152 or 656 bytes.
//
// A block has up to 64 heads of a token (an item) and takes cache rows 128 at a time: two tiles of 64, which come panel
// by panel, by the copy engine through a tensor map or row by row. The first warpgroup computes the scores of the even
// tiles, their weights and columns [0, 256) of the values, the second those of the odd ones and columns [256, 512), so
// that one's softmax runs beside the other's products (FlashMLA's schedule, April 2025). For each pair of tiles, with m
// a row's maximum and v a tile's values:
//
//   first                                            second
//   s0 = q k0^T                                      s1 = q k1^T
//   m0 = max(m, s0)                    -> m0 ->
//   w0 = exp2(s0 - m0)                 <- m1 <-      m1 = max(m0, s1)
//   o  = o exp2(m - m0) + w0 v0        <- w1 <-      w1 = exp2(s1 - m1)
//   w0 = w0 exp2(m0 - m1)              -> w0 ->      o  = o exp2(m - m1) + w1 v1
//   o  = o exp2(m0 - m1) + w1 v1                     o  = o + w0 v0
//
// The next scores wait for places that the last products leave, and a tile takes some 2,000 cycles to come. So what the
// other one waits for is told as soon as it is known, and what can run beside a product does.
//
// What is cut into parts (absorbed_wide_parts.cuh) a second kernel adds up, in the order of the rows.
//
// Grid: multiprocessors; then items x shares of their query rows. Shared memory: 226 KB.

#include <bit>

#include "cuda/attention/absorbed_wide_f8.cuh"
#include "cuda/attention/absorbed_wide_rows.cuh"
#include "cuda/attention/mla_absorbed.h"
#include "cuda/device/reduce.cuh"
#include "cuda/gemm/tensor_map.h"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/device_arena.h"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda::absorbed {
namespace {

constexpr int kThreads = kComputing + 128;  // registers move between whole warpgroups

// Registers of a thread that brings rows and of one that computes.
template <RowSource kSource>
struct Registers {
  static constexpr int kProducer = kSource == RowSource::kF8Rows ? 72 : 56;
  static constexpr int kComputing = 252 - kProducer / 2;  // of two warpgroups
};

// ---- copies ----

// One of the threads that bring tile `tile`. One of them all hands the parts over.
struct Parts {
  const WideParams& p;
  const CUtensorMap& queries;
  char* const memory;
  const uint32_t shared;
  const bool hands_over;
  uint32_t num_parts = 0;  // so far

  __device__ __forceinline__ void hand_over(const WidePart& part) {
    const uint32_t at = num_parts % 2, turn = num_parts / 2 & 1;
    ++num_parts;
    if (!hands_over) return;
    barrier_wait(shared + WideShared::kPartEmpty + at * 8, turn ^ 1);
    reinterpret_cast<WidePart*>(memory + WideShared::kParts)[at] = part;
    barrier_arrive(shared + WideShared::kPartFull + at * 8);
    if (part.token >= 0) load_queries(part);
  }

  // As soon as the scores of the part before are done: beside its last values.
  __device__ __forceinline__ void load_queries(const WidePart& part) const {
    const uint32_t full = shared + WideShared::kQueriesFull;
    barrier_wait(shared + WideShared::kQueriesEmpty, num_parts % 2);
    barrier_expect(full, kLatentPanels * kPanelBytes);
#pragma unroll 1
    for (int panel = 0; panel < kLatentPanels; ++panel)
      load_tile(&queries, shared + WideShared::kQueries + panel * kPanelBytes, full, panel * 64,
                part.token * p.absorbed.heads + part.first_head);
  }

  // Calls `produce` for each part, with all lanes together. Only the last item that a block begins in a call of many
  // tokens goes on in the next one.
  template <class Produce>
  __device__ __forceinline__ void walk(const Produce& produce) {
    const bool is_few = p.absorbed.tokens <= kFewTokens;
    PartedItem last{.parts = 1};
    walk_parts(p, [&](const WidePart& part, bool is_first, int parts) {
      if (is_first && parts > 1) last = {part.token, part.first_head, part.slot, parts};
      if (is_first && is_few && hands_over)
        p.items[part.token * p.head_groups + part.first_head / kWideRows] = {
            part.token, part.first_head, part.slot, parts};
      hand_over(part);
      __syncwarp();
      produce(part);
      __syncwarp();
    });
    if (!is_few && hands_over) p.items[blockIdx.x] = last;
    hand_over({.token = -1});
  }
};

// A warp, of which the first lane asks the copy engine.
struct TileProducer {
  const CUtensorMap& rows;
  const uint32_t shared;
  const int tile;
  uint32_t tiles = 0;  // so far

  __device__ __forceinline__ void load(int piece, int kv_row) {
    const int first = piece == kRopePiece ? kRopePanel : piece == kRightPiece ? kHalfPanels : 0;
    const int end = piece == kRopePiece ? kPanels : first + kHalfPanels;
    barrier_wait(WideShared::empty(shared, tile, piece), (tiles & 1) ^ 1);
#pragma unroll 1  // or addresses spill
    for (int panel = first; panel < end; ++panel) {
      const uint32_t full = WideShared::full(shared, tile, panel);
      barrier_expect(full, kPanelBytes);
      load_tile(&rows, WideShared::panel(shared, tile, panel), full, panel * 64, kv_row);
    }
  }

  __device__ __forceinline__ void produce(const WideParams& p, const WidePart& part) {
    if (threadIdx.x % 32 != 0) return;
    int row = part.begin_row + tile * kWideTile;
    AskedRow next = AskedRow::of(p, part.seq, row, part.end_row);
    for (; row < part.end_row; row += kPair, ++tiles) {
      const int32_t kv_row = next.kv_row(p, row);
      next = AskedRow::of(p, part.seq, row + kPair, part.end_row);
      // In the order in which the warpgroups are done with what lies there.
      load(kRopePiece, kv_row);
      load(tile == 0 ? kLeftPiece : kRightPiece, kv_row);
      load(tile == 0 ? kRightPiece : kLeftPiece, kv_row);
    }
  }
};

// One of the four warps that bring rows of bf16 one by one.
template <RowSource kSource>
struct RowProducer {
  RowPairs<kSource> rows;

  __device__ __forceinline__ void produce(const WidePart& part) {
    rows.begin(part);
    for (int row = part.begin_row; row < part.end_row; row += kPair) rows.load_pair(part, row);
  }
};

// One of the two warps that bring a tile of rows in f8.
struct F8Producer {
  F8Rows rows;
  const int tile, warp;
  uint32_t tiles = 0;  // so far

  __device__ __forceinline__ void produce(const WideParams& p, const WidePart& part) {
    const int mine = warp * kWarpRows + static_cast<int>(threadIdx.x) % 32;  // of a tile
    int row = part.begin_row + tile * kWideTile;
    int32_t kv_row = AskedRow::of(p, part.seq, row + mine, part.end_row).kv_row(p, row + mine);
    uint4 scales = rows.scales_of(kv_row);
    AskedRow next = AskedRow::of(p, part.seq, row + kPair + mine, part.end_row);
    for (; row < part.end_row; row += kPair, ++tiles) {
      const uint32_t exponents = exponents_of(scales);
      const int32_t next_row = next.kv_row(p, row + kPair + mine);
      scales = rows.scales_of(next_row);
      next = AskedRow::of(p, part.seq, row + 2 * kPair + mine, part.end_row);
      rows.load_tile(tiles, kv_row, exponents);
      kv_row = next_row;
    }
  }
};

template <RowSource kSource>
__device__ __forceinline__ void bring_rows(const WideParams& p, const CUtensorMap& rows,
                                           const CUtensorMap& queries, char* memory,
                                           uint32_t shared) {
  const int thread = static_cast<int>(threadIdx.x) - kComputing;
  Parts parts{p, queries, memory, shared, thread == 0};
  if constexpr (kSource == RowSource::kTiles) {
    if (thread >= 2 * 32) return;
    TileProducer producer{rows, shared, thread / 32};
    parts.walk([&](const WidePart& part) { producer.produce(p, part); });
  } else if constexpr (kIsBf16Rows<kSource>) {
    RowProducer<kSource> producer{RowPairs<kSource>(p, shared)};
    parts.walk([&](const WidePart& part) { producer.produce(part); });
  } else {
    const int tile = thread / kTileThreads, warp = thread % kTileThreads / 32;
    F8Producer producer{F8Rows(p, memory, shared, tile, warp), tile, warp};
    parts.walk([&](const WidePart& part) { producer.produce(p, part); });
  }
}

// An even tile whose scores are under way, and the odd one behind it, whose values are under way afterwards.
template <bool kHasOdd, RowSource kSource>
__device__ __forceinline__ void take_even(Warpgroup<0, kSource>& w, const WidePart& part, int row) {
  mma_wait<0>(w.scores);
  w.release(0, kRopePiece);
  if (row + kPair >= part.end_row) w.release_queries();
  w.hide(part, row);
  float max[2] = {w.row_max[0], w.row_max[1]};
  w.row_maxima(max);
  w.put_maxima(max);
  w.tell(kEvenMaxima);
  w.weigh(max);
  uint32_t own[4][4];
  w.pack(own);
  w.scale_values(
      {exp2_fast(w.row_max[0] - finite_max(max[0])), exp2_fast(w.row_max[1] - finite_max(max[1]))});
  w.add_own(own);
  const auto finish_own = [&] {
    mma_wait<0>(w.values);
    keep_operand(own);
    w.release(0, kLeftPiece);
  };
  // Rows in FP8 take so long to come that their place counts more.
  constexpr bool kReleasesFirst = kSource == RowSource::kF8Rows;
  if constexpr (kReleasesFirst) finish_own();
  w.wait_for(kOddMaxima);
  w.row_max[0] = w.max_of(1, 0);
  w.row_max[1] = w.max_of(1, 1);
  const float factor[2] = {exp2_fast(max[0] - finite_max(w.row_max[0])),
                           exp2_fast(max[1] - finite_max(w.row_max[1]))};
#pragma unroll
  for (int half = 0; half < 2; ++half) w.row_sum[half] *= factor[half];
  w.scale_weights(factor);
  w.store_weights();
  w.tell(kEvenWeights);
  if constexpr (!kReleasesFirst) finish_own();
  ++w.turns[0];
  if constexpr (kHasOdd) {
    w.scale_values(factor);
    w.wait_for(kOddWeights);
    w.add_others();
    mma_wait<0>(w.values);
    w.release(1, kLeftPiece);
    ++w.turns[1];
  }
}

// The even tiles, and columns [0, 256).
template <RowSource kSource>
__device__ __forceinline__ void attend_even(Warpgroup<0, kSource>& w, const WidePart& part) {
  if (!part.has_rows()) w.release_queries();
  int row = part.begin_row;
#pragma unroll 1
  for (; row + kWideTile < part.end_row; row += kPair) {
    w.score(0);
    take_even<true>(w, part, row);
  }
  if (row >= part.end_row) return;
  w.score(0);
  take_even<false>(w, part, row);
}

// An odd tile whose scores are under way, or none, and the even one before it.
template <bool kHasOdd, RowSource kSource>
__device__ __forceinline__ void take_odd(Warpgroup<1, kSource>& w, const WidePart& part, int row) {
  float max[2] = {minus_infinity(), minus_infinity()};
  if constexpr (kHasOdd) {
    mma_wait<0>(w.scores);
    w.release(1, kRopePiece);
    if (row + kPair + kWideTile >= part.end_row) w.release_queries();
    w.hide(part, row + kWideTile);
    w.row_maxima(max);
  }
  w.wait_for(kEvenMaxima);
  max[0] = fmaxf(max[0], w.max_of(0, 0));
  max[1] = fmaxf(max[1], w.max_of(0, 1));
  w.put_maxima(max);
  w.tell(kOddMaxima);
  max[0] = w.max_of(1, 0);  // the same again, so that weights come behind what was told
  max[1] = w.max_of(1, 1);
  const float factor[2] = {exp2_fast(w.row_max[0] - finite_max(max[0])),
                           exp2_fast(w.row_max[1] - finite_max(max[1]))};
  uint32_t own[4][4];
  if constexpr (kHasOdd) {
    w.weigh(max);
    w.pack(own);
    w.store_weights();
    w.tell(kOddWeights);
  } else {
#pragma unroll
    for (int half = 0; half < 2; ++half) w.row_sum[half] *= factor[half];
  }
  w.row_max[0] = max[0];
  w.row_max[1] = max[1];
  w.scale_values(factor);
  if constexpr (kHasOdd) w.add_own(own);
  w.wait_for(kEvenWeights);
  w.template add_others<kHasOdd>();
  if constexpr (kHasOdd) {
    wait_first_products();
    w.release(1, kRightPiece);
    ++w.turns[1];
  }
  mma_wait<0>(w.values);
  if constexpr (kHasOdd) keep_operand(own);
  w.release(0, kRightPiece);
  ++w.turns[0];
}

// The odd tiles, and columns [256, 512).
template <RowSource kSource>
__device__ __forceinline__ void attend_odd(Warpgroup<1, kSource>& w, const WidePart& part) {
  int row = part.begin_row;
  if (row + kWideTile >= part.end_row) w.release_queries();  // no odd tile
#pragma unroll 1
  for (; row + kWideTile < part.end_row; row += kPair) {
    w.score(1);
    take_odd<true>(w, part, row);
  }
  if (row < part.end_row) take_odd<false>(w, part, row);
}

template <int kOwn, RowSource kSource>
__device__ __forceinline__ void attend_parts(Warpgroup<kOwn, kSource>&& w) {
  const auto part_at = [&](uint32_t turn) -> const WidePart& {
    barrier_wait(w.shared + WideShared::kPartFull + turn % 2 * 8, turn / 2 & 1);
    return reinterpret_cast<const WidePart*>(w.memory + WideShared::kParts)[turn % 2];
  };
  if (part_at(0).token >= 0) w.load_rope(part_at(0));
  for (uint32_t turn = 0;; ++turn) {
    const WidePart& part = part_at(turn);
    if (part.token < 0) return;
    w.begin_part();
    if constexpr (kOwn == 0) {
      attend_even(w, part);
    } else {
      attend_odd(w, part);
    }
    const WidePart& next = part_at(turn + 1);
    if (next.token >= 0) w.load_rope(next);  // beside what this part leaves
    w.end_part(part);
    __syncwarp();
    if (w.lane() == 0) barrier_arrive(w.shared + WideShared::kPartEmpty + turn % 2 * 8);
  }
}

template <RowSource kSource>
__global__ void __launch_bounds__(kThreads, 1)
    wide_kernel(const __grid_constant__ WideParams p, const __grid_constant__ CUtensorMap rows,
                const __grid_constant__ CUtensorMap queries) {
  extern __shared__ __align__(1024) char memory[];
  const uint32_t shared = shared_address(memory);
  let_next_start();
  if (threadIdx.x == 0) {
    constexpr int kArrivals = kSource == RowSource::kTiles ? 1
                              : kIsBf16Rows<kSource>       ? kThreads - kComputing
                                                           : kTileThreads;
    for (int i = 0; i < 2 * kPanels; ++i)
      barrier_init(shared + WideShared::kFull + i * 8, kArrivals);
    for (int i = 0; i < 2 * kPieces; ++i) barrier_init(shared + WideShared::kEmpty + i * 8, 4);
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared + WideShared::kPartFull + i * 8, 1);
      barrier_init(shared + WideShared::kPartEmpty + i * 8, kComputing / 32);
    }
    barrier_init(shared + WideShared::kBoth, kComputing / 32);
    barrier_init(shared + WideShared::kQueriesFull, 1);
    barrier_init(shared + WideShared::kQueriesEmpty, kComputing / 32);
    barriers_are_ready();
    prefetch_map(&queries);
    if constexpr (kSource == RowSource::kTiles) prefetch_map(&rows);
  }
  __syncthreads();
  wait_for_previous();
  const int group = threadIdx.x / 128;
  if (group == 2) {
    give_registers<Registers<kSource>::kProducer>();
    return bring_rows<kSource>(p, rows, queries, memory, shared);
  }
  take_registers<Registers<kSource>::kComputing>();
  if (group == 0) {
    attend_parts(Warpgroup<0, kSource>{p, memory, shared});
  } else {
    attend_parts(Warpgroup<1, kSource>{p, memory, shared});
  }
}

// ---- the sum of an item's parts: 128 threads for a query row ----

constexpr int kSumThreads = 256;

// A lane's part, of 32 that begin with `first`: what statistics it has, and those of a part without rows otherwise.
__device__ __forceinline__ float2 part_stats(const WideParams& p, const PartedItem& item, int first,
                                             int row) {
  const int part = first + static_cast<int>(threadIdx.x) % 32;
  if (part >= item.parts) return {minus_infinity(), 0.0f};
  return __ldcg(p.stats + int64_t{part_slot(p, item.first_slot, part)} * kWideRows + row);
}

// kLoads: values under way together.
template <int kLoads>
__device__ __forceinline__ void add_parts(const WideParams& p, const PartedItem& item, int row) {
  float2 stats = part_stats(p, item, 0, row);
  float max = stats.x, sum = 0.0f;
  for (int first = 32; first < item.parts; first += 32)
    max = fmaxf(max, part_stats(p, item, first, row).x);
  max = warp_max(max);
  const int column = threadIdx.x % 128 * 4;
  float4 values{};
  for (int first = 0; first < item.parts; first += 32) {
    if (first > 0) stats = part_stats(p, item, first, row);
    const float mine = exp2_fast(stats.x - max);
    sum = __fmaf_rn(stats.y, mine, sum);
    for (int i = 0; i < min(32, item.parts - first); i += kLoads) {
      float4 v[kLoads] = {};
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const int part = first + i + j;
        if (part >= item.parts) continue;
        const int64_t at = int64_t{part_slot(p, item.first_slot, part)} * kWideRows + row;
        v[j] = __ldcg(reinterpret_cast<const float4*>(p.values + at * kLatent + column));
      }
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const float factor = __shfl_sync(0xffffffffu, mine, i + j);
        values = {__fmaf_rn(v[j].x, factor, values.x), __fmaf_rn(v[j].y, factor, values.y),
                  __fmaf_rn(v[j].z, factor, values.z), __fmaf_rn(v[j].w, factor, values.w)};
      }
    }
  }
  const float factor = 1.0f / warp_sum(sum);
  Bf16* const out = p.absorbed.out +
                    (int64_t{item.token} * p.absorbed.heads + item.first_head + row) * kLatent +
                    column;
  *reinterpret_cast<uint2*>(out) = {floats_to_bf16x2(values.x * factor, values.y * factor),
                                    floats_to_bf16x2(values.z * factor, values.w * factor)};
}

// kIsFew: few items of many parts; otherwise more of fewer.
template <bool kIsFew>
__global__ void __launch_bounds__(kSumThreads, kIsFew ? 3 : 6)
    add_parts_kernel(const __grid_constant__ WideParams p) {
  let_next_start();
  wait_for_previous();
  const AbsorbedParams& a = p.absorbed;
  const int tokens = a.first_token(a.seqs);
  const PartedItem item = p.items[blockIdx.x];
  if (kIsFew && static_cast<int>(blockIdx.x) / p.head_groups >= tokens) return;  // nobody's
  if (item.parts == 1) return;
  const int heads = min(kWideRows, a.heads - item.first_head);
  constexpr int kStride = kSumThreads / 128;
  for (int row = static_cast<int>(blockIdx.y * kStride + threadIdx.x / 128); row < heads;
       row += static_cast<int>(gridDim.y) * kStride)
    add_parts<kIsFew ? 8 : 4>(p, item, row);
}

Matrix rows_of(const ops::KvCache& cache) {
  return {.data = cache.rows.data(),
          .dtype = tensor::DType::kBf16,
          .rows = cache.rows.dim(0) * cache.block_tokens(),
          .columns = kDim,
          .stride = kDim};
}

Matrix queries_of(const ops::MlaAbsorbedArgs& args) {
  return {.data = args.q_latent.data(),
          .dtype = tensor::DType::kBf16,
          .rows = args.out.dim(0) * args.out.dim(1),
          .columns = kLatent,
          .stride = kLatent};
}

int64_t head_groups(const ops::MlaAbsorbedArgs& args) {
  return (args.out.dim(1) + kWideRows - 1) / kWideRows;
}

// Those of this call, or of one with fewer tokens.
int64_t max_slots(const ops::MlaAbsorbedArgs& args) {
  const int64_t tokens = args.out.dim(0);
  const int64_t max_rows = args.block_tables.dim(1) * args.cache.block_tokens();
  const int64_t parts = max_rows <= 32 << kChunkShift ? 32 : kMostFewParts;
  const int64_t few = std::min<int64_t>(tokens, kFewTokens) * head_groups(args) * parts;
  return tokens > kFewTokens ? std::max<int64_t>(few, 2 * num_multiprocessors()) : few;
}

int64_t num_items(const ops::MlaAbsorbedArgs& args) {
  return args.out.dim(0) <= kFewTokens ? args.out.dim(0) * head_groups(args)
                                       : num_multiprocessors();
}

void carve(const ops::MlaAbsorbedArgs& args, DeviceArena& arena, WideParams& p) {
  const int64_t rows = max_slots(args) * kWideRows;
  p.values = arena.take<float>(rows * kLatent);
  p.stats = arena.take<float2>(rows);
  p.items = arena.take<PartedItem>(
      std::max<int64_t>(num_items(args), kFewTokens * head_groups(args)));  // of fewer tokens too
}

// Lists have blocks of one row, of which no tensor map brings several.
RowSource source_of(const ops::MlaAbsorbedArgs& args) {
  if (args.cache.format.latent == tensor::DType::kF8E4M3) return RowSource::kF8Rows;
  return args.cache.block_tokens() % kWideTile == 0 ? RowSource::kTiles : RowSource::kRows;
}

template <RowSource kSource>
void start(const WideParams& p, const CUtensorMap& rows, const CUtensorMap& queries,
           ops::Stream& stream) {
  launch(wide_kernel<kSource>,
         {.grid = static_cast<unsigned>(num_multiprocessors()),
          .block = kThreads,
          .shared_bytes = WideShared::kBytes},
         stream, p, rows, queries);
}

}  // namespace

bool can_run_wide(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream) {
  return !stream.backend().batch_invariant && head_groups(args) <= num_multiprocessors() &&
         can_map(queries_of(args)) &&
         std::has_single_bit(static_cast<uint64_t>(args.cache.block_tokens())) &&
         (source_of(args) != RowSource::kTiles || can_map(rows_of(args.cache)));
}

int64_t wide_scratch_bytes(const ops::MlaAbsorbedArgs& args) {
  DeviceArena arena;
  WideParams p{};
  carve(args, arena, p);
  return arena.bytes();
}

void run_wide(const ops::MlaAbsorbedArgs& args, ops::Stream& stream, const SeenRows* seen) {
  WideParams p{};
  p.absorbed = absorbed_params(args);
  p.absorbed.group_tokens = 1;
  p.absorbed.head_groups = 1;
  p.block_shift = std::countr_zero(static_cast<uint64_t>(args.cache.block_tokens()));
  p.head_groups = static_cast<int>(head_groups(args));
  DeviceArena arena(stream.scratch());
  carve(args, arena, p);
  if (p.absorbed.tokens == 0 || p.absorbed.seqs == 0) return;
  p.seen = seen;
  p.seen_stride = args.block_tables.dim(1) / kWideTile;
  const CUtensorMap queries = tensor_map(queries_of(args), kWideRows);
  switch (seen != nullptr ? RowSource::kSharedRows : source_of(args)) {
    case RowSource::kTiles:
      start<RowSource::kTiles>(p, tensor_map(rows_of(args.cache), kWideTile), queries, stream);
      break;
    case RowSource::kRows:
      start<RowSource::kRows>(p, {}, queries, stream);
      break;
    case RowSource::kF8Rows:
      start<RowSource::kF8Rows>(p, {}, queries, stream);
      break;
    case RowSource::kSharedRows:
      start<RowSource::kSharedRows>(p, {}, queries, stream);
      break;
  }
  const bool is_few = p.absorbed.tokens <= kFewTokens;
  launch(is_few ? add_parts_kernel<true> : add_parts_kernel<false>,
         {.grid = dim3(static_cast<unsigned>(num_items(args)), is_few ? 32 : 16),
          .block = kSumThreads},
         stream, p);
}

}  // namespace fathom::cuda::absorbed
