#pragma once
// The parts of which wide absorbed attention (mla_absorbed_wide.cu) is made: what lies where in shared memory, and what
// a warpgroup does with the tiles of a part of an item. Internal to cuda/attention/.
//
//   Warpgroup<0, RowSource::kTiles> w{p, memory, shared};                    // of the even tiles
//   w.load_rope(part);  w.begin_part();                   // waits for queries
//   w.score(0);  mma_wait<0>(w.scores);                   // as panels arrive: 64 query rows, 64 rows of the cache
//   w.hide(part, row);  w.weigh(max);  w.pack(own);       // weights
//   w.add_own(own);                                       // values
//   w.release_queries();  w.end_part(part);               // writes them

#include "cuda/attention/absorbed_wide_parts.cuh"
#include "cuda/attention/mla_absorbed.h"
#include "cuda/device/quad.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/mma/panels.cuh"
#include "cuda/mma/warpgroup.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda::absorbed {

inline constexpr int kWideTile = 64, kPair = 2 * kWideTile;  // cache rows
inline constexpr int kPanels = kDim / 64, kLatentPanels = kLatent / 64, kRopePanel = 8;
inline constexpr int kPanelBytes = kWideTile * kPanelRowBytes;
inline constexpr int kHalfPanels = kLatentPanels / 2, kHalf = kLatent / 2;  // a warpgroup's values
inline constexpr int kComputing = 256;                                      // threads

// What the copy engine may write again at different times: a tile's rope, the halves of its latent values.
enum Piece { kRopePiece, kLeftPiece, kRightPiece, kPieces };

// Numbered barriers: what the warpgroups tell each other (the even tile's maxima and the odd one's, the even tile's
// scaled weights and the odd one's are there), and one of each by itself.
enum Signal { kEvenMaxima = 1, kOddMaxima, kEvenWeights, kOddWeights, kOwnBarrier };

// Where the rows of a tile come from: a tensor map brings bf16 rows that lie side by side; others are gathered, in bf16
// or in f8, which become bf16 (absorbed_wide_rows.cuh). Shared rows are kRows of which a query row sees some.
enum class RowSource { kTiles, kRows, kF8Rows, kSharedRows };
template <RowSource kSource>
inline constexpr bool kIsBf16Rows =
    kSource == RowSource::kRows || kSource == RowSource::kSharedRows;

struct WideShared {
  static constexpr int kQueries = 0;  // latent values; rope is in registers
  static constexpr int kTiles = kQueries + kLatentPanels * kPanelBytes;
  static constexpr int kWeights = kTiles + 2 * kPanels * kPanelBytes;  // of both tiles
  static constexpr int kMaxima = kWeights + 2 * kPanelBytes;           // m0, m1
  static constexpr int kSums =
      kMaxima + 2 * kWideRows * 4;  // of both warpgroups, two parts in turns
  static constexpr int kParts = kSums + 2 * 2 * kWideRows * 4;  // two, in turns
  static constexpr int kSeen = kParts + 2 * sizeof(WidePart);   // of both tiles, of shared rows
  static constexpr int kFull = kSeen + 2 * sizeof(SeenRows);    // of each panel of both tiles
  static constexpr int kEmpty = kFull + 2 * kPanels * 8;        // of each piece
  static constexpr int kPartFull = kEmpty + 2 * kPieces * 8;
  static constexpr int kPartEmpty = kPartFull + 2 * 8;
  static constexpr int kBoth = kPartEmpty + 2 * 8;  // where both warpgroups meet
  static constexpr int kQueriesFull = kBoth + 8;
  static constexpr int kQueriesEmpty = kQueriesFull + 8;
  static constexpr int kBytes = kQueriesEmpty + 8;

  __device__ static uint32_t full(uint32_t shared, int tile, int panel) {
    return shared + kFull + (tile * kPanels + panel) * 8;
  }
  __device__ static uint32_t empty(uint32_t shared, int tile, int piece) {
    return shared + kEmpty + (tile * kPieces + piece) * 8;
  }
  __device__ static uint32_t panel(uint32_t shared, int tile, int panel) {
    return shared + kTiles + (tile * kPanels + panel) * kPanelBytes;
  }
};
static_assert(WideShared::kParts % 16 == 0 && WideShared::kSeen % 16 == 0);
static_assert(WideShared::kBytes <= 227 * 1024);

// Until the first of two groups of products is done. Registers of both stay untouched.
__device__ __forceinline__ void wait_first_products() {
  asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

// One of the two warpgroups that compute. kOwn: whose tiles' scores it computes (0 the even ones, 1 the odd) and which
// half of the values is its. A thread has query rows row() and row() + 8.
template <int kOwn, RowSource kSource>
struct Warpgroup {
  const WideParams& p;
  char* const memory;
  const uint32_t shared;
  float values[128];             // of the part so far, d of mma/warpgroup.cuh
  float scores[32];              // of a tile; then weights
  uint32_t rope[4][4];           // the queries', fragments of a
  float row_max[2], row_sum[2];  // the sums are the thread's share
  uint32_t turns[2] = {0, 0};    // tiles so far
  uint32_t parts = 0;            // so far
  uint32_t seen = 0;             // of shared rows, which of a tile's scores count

  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }
  __device__ __forceinline__ static int row() {
    return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  }
  __device__ __forceinline__ float& max_of(int of_tile, int half) const {
    return reinterpret_cast<float*>(memory +
                                    WideShared::kMaxima)[of_tile * kWideRows + row() + half * 8];
  }
  __device__ __forceinline__ void put_maxima(const float (&max)[2]) const {
    if (lane() % 4 == 0) {
      max_of(kOwn, 0) = max[0];
      max_of(kOwn, 1) = max[1];
    }
    __syncwarp();  // products and numbered barriers need the lanes together
  }
  __device__ __forceinline__ uint32_t weights(int of_tile) const {
    return shared + WideShared::kWeights + of_tile * kPanelBytes;
  }
  // The warps of this warpgroup wait for each other.
  __device__ __forceinline__ void meet() const { named_barrier_sync(kOwnBarrier + kOwn, 128); }
  // Both warpgroups wait for each other, at the end of a part.
  __device__ __forceinline__ void meet_both() const {
    __syncwarp();
    if (lane() == 0) barrier_arrive(shared + WideShared::kBoth);
    barrier_wait(shared + WideShared::kBoth, parts & 1);
  }
  // One warpgroup tells the other, which waits.
  __device__ __forceinline__ void tell(Signal signal) const {
    named_barrier_arrive(signal, kComputing);
  }
  __device__ __forceinline__ void wait_for(Signal signal) const {
    named_barrier_sync(signal, kComputing);
  }
  __device__ __forceinline__ void release(int of_tile, int piece) const {
    if (lane() == 0) barrier_arrive(WideShared::empty(shared, of_tile, piece));
    __syncwarp();
  }
  __device__ __forceinline__ void release_queries() const {
    if (lane() == 0) barrier_arrive(shared + WideShared::kQueriesEmpty);
    __syncwarp();
  }
  __device__ __forceinline__ void wait_panel(int of_tile, int panel) const {
    barrier_wait(WideShared::full(shared, of_tile, panel), turns[of_tile] & 1);
  }
  __device__ __forceinline__ void wait_half(int of_tile, int half) const {
    // Threads that copy rows tell of a whole half.
    constexpr int kWaits = kIsBf16Rows<kSource> ? 1 : kHalfPanels;
#pragma unroll
    for (int i = 0; i < kWaits; ++i) wait_panel(of_tile, half * kHalfPanels + i);
    publish_rows();
  }
  // What threads copied: a fence takes too long to have one for every panel.
  __device__ __forceinline__ static void publish_rows() {
    if constexpr (kSource != RowSource::kTiles) publish_to_products();
  }

  // Scores of this warpgroup's tile, rope first, then both halves of the latent values in any order, as they arrive.
  __device__ __forceinline__ void score_rope() {
    wait_panel(kOwn, kRopePanel);
    publish_rows();
    if constexpr (kSource == RowSource::kSharedRows) {
      seen = reinterpret_cast<const SeenRows*>(memory + WideShared::kSeen)[kOwn]
                 .bits[threadIdx.x % 128 / 32][lane() % 4];
      __syncwarp();  // the first lane gives the place back
    }
    const uint32_t keys = descriptor_word(WideShared::panel(shared, kOwn, kRopePanel));
    mma_begin(scores);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      mma(scores, rope[k], descriptor(keys + k * kStepOfK), k != 0, Bf16{});
  }
  __device__ __forceinline__ void score_half(int half) {
    if constexpr (kSource != RowSource::kTiles) wait_half(kOwn, half);
#pragma unroll
    for (int i = 0; i < kHalfPanels; ++i) {
      const int panel = half * kHalfPanels + i;
      if constexpr (kSource == RowSource::kTiles) wait_panel(kOwn, panel);
      begin_products();
      const uint32_t queries = descriptor_word(shared + WideShared::kQueries + panel * kPanelBytes);
      const uint32_t keys = descriptor_word(WideShared::panel(shared, kOwn, panel));
#pragma unroll
      for (int k = 0; k < 4; ++k)
        mma(scores, descriptor(queries + k * kStepOfK), descriptor(keys + k * kStepOfK), true,
            Bf16{});
    }
  }

  // All of them, half `first` first.
  __device__ __forceinline__ void score(int first) {
    score_rope();
    score_half(first);
    score_half(1 - first);
    mma_commit();
  }

  // values += weights * half kOwn of the values of tile `of_tile`, weights in registers or shared memory.
  __device__ __forceinline__ uint64_t value_operand(int of_tile, int k) const {
    return panel_operand(
        WideShared::panel(shared, of_tile, kOwn * kHalfPanels) + k * 16 * kPanelRowBytes,
        kPanelBytes);
  }
  __device__ __forceinline__ void add_own(const uint32_t (&own)[4][4]) {
    mma_begin(values);
#pragma unroll
    for (int k = 0; k < 4; ++k) mma_rows(values, own[k], value_operand(kOwn, k), true);
    mma_commit();
  }
  // kBehind: products of the same values are under way, so that their registers must not be touched.
  template <bool kBehind = false>
  __device__ __forceinline__ void add_others() {
    const int other = 1 - kOwn;
    wait_half(other, kOwn);
    const uint32_t a = descriptor_word(weights(other));
    if constexpr (kBehind) {
      begin_products();
    } else {
      mma_begin(values);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
      mma_rows(values, descriptor(a + k * kStepOfK), value_operand(other, k), true);
    mma_commit();
  }

  // Scores of rows that the token does not see, and those rows' values: they may be anything.
  __device__ __forceinline__ void hide(const WidePart& part, int first_row) {
    if constexpr (kSource == RowSource::kSharedRows) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if ((seen >> (i / 4 * 2 + i % 2) & 1) == 0) scores[i] = minus_infinity();
    }
    if (first_row + kWideTile <= part.plain_end()) return;
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (!part.sees(first_row + i / 4 * 8 + lane() % 4 * 2 + i % 2)) scores[i] = minus_infinity();
    meet();  // all warps have their scores
    for (int i = threadIdx.x % 128; i < kWideTile * kLatent / 8; i += 128) {
      const int at = i / (kLatent / 8), vector = i % (kLatent / 8);
      if (part.sees(first_row + at)) continue;
      const int to = WideShared::kTiles + (kOwn * kPanels + vector / 8) * kPanelBytes +
                     panel_offset(at, vector % 8);
      *reinterpret_cast<uint4*>(memory + to) = {};
    }
    publish_to_products();
    meet();
  }

  __device__ __forceinline__ void row_maxima(float (&max)[2]) const {
    const float scale = p.absorbed.scale;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = minus_infinity();
#pragma unroll
      for (int n = 0; n < 8; ++n)
        top = fmaxf(top, fmaxf(scores[n * 4 + half * 2], scores[n * 4 + half * 2 + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      max[half] = fmaxf(max[half], top * scale);
    }
  }
  // Scores become weights; the sums take them in.
  __device__ __forceinline__ void weigh(const float (&max)[2]) {
    const float scale = p.absorbed.scale;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float from = finite_max(max[half]);
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = scores[n * 4 + half * 2 + i];
          s = exp2_fast(__fmaf_rn(s, scale, -from));
          sum += s;
        }
      }
      row_sum[half] = __fmaf_rn(row_sum[half], exp2_fast(row_max[half] - from), sum);
    }
  }
  // A row's maximum seldom changes after its first tiles.
  __device__ __forceinline__ void scale_values(const float (&factor)[2]) {
    if (__all_sync(0xffffffffu, factor[0] == 1.0f && factor[1] == 1.0f)) return;
#pragma unroll
    for (int i = 0; i < 128; ++i) values[i] *= factor[i / 2 % 2];
  }
  // What the products take.
  __device__ __forceinline__ void pack(uint32_t (&of_step)[4], int k) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = (2 * k + i / 2) * 4 + i % 2 * 2;
      of_step[i] = floats_to_bf16x2(scores[at], scores[at + 1]);
    }
  }
  __device__ __forceinline__ void pack(uint32_t (&own)[4][4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) pack(own[k], k);
  }
  // In place: with the factors in pack() the compiler has too few registers beside producers of f8 rows, and runs
  // products one by one.
  __device__ __forceinline__ void scale_weights(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) scores[i] *= factor[i / 2 % 2];
  }
  // Steps of the products differ in bits of the address that a row's swizzle leaves alone. Computed each time: there is
  // no register to keep them in.
  __device__ __forceinline__ void store_weights() const {
    const int at = threadIdx.x % 128 / 32 * 16 + lane() / 8 % 2 * 8 + lane() % 8;
    const uint32_t to = kept(weights(kOwn) + panel_offset(at, lane() / 16));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t of_step[4];
      pack(of_step, k);
      store_matrix_x4(to ^ k * 32, of_step);
    }
    publish_to_products();
  }

  // ---- a part's begin and end ----

  // Of rows behind the last head anything: nothing comes of them.
  __device__ __forceinline__ void load_rope(const WidePart& part) {
    const AbsorbedParams& a = p.absorbed;
    const Bf16* from[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = part.first_head + min(row() + half * 8, part.num_heads - 1);
      from[half] = a.q_rope + part.token * a.q_rope_token_stride + head * a.q_rope_head_stride +
                   lane() % 4 * 2;
    }
    const auto load = [&](auto&& word) {
#pragma unroll
      for (int i = 0; i < 16; ++i)
        rope[i / 4][i % 4] = word(from[i % 2] + i / 4 * 16 + i / 2 % 2 * 8);
    };
    if (a.q_rope_is_aligned) {
      load([](const Bf16* at) { return *reinterpret_cast<const uint32_t*>(at); });
    } else {
      load([](const Bf16* at) {
        const auto* const halves = reinterpret_cast<const uint16_t*>(at);
        return halves[0] | uint32_t{halves[1]} << 16;
      });
    }
  }

  // The queries' rope is loaded, all else of them on its way.
  __device__ __forceinline__ void begin_part() {
    row_max[0] = row_max[1] = minus_infinity();
    row_sum[0] = row_sum[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < 128; ++i) values[i] = 0.0f;
    barrier_wait(shared + WideShared::kQueriesFull, parts & 1);
  }

  // The row's sum of both warpgroups.
  __device__ __forceinline__ void add_sums(float (&sum)[2]) {
    auto* const sums =
        reinterpret_cast<float*>(memory + WideShared::kSums) + parts % 2 * 2 * kWideRows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = row_sum[half];
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
      if (lane() % 4 == 0) sums[kOwn * kWideRows + row() + half * 8] = sum[half];
    }
    meet_both();
#pragma unroll
    for (int half = 0; half < 2; ++half)
      sum[half] = sums[row() + half * 8] + sums[kWideRows + row() + half * 8];
  }

  __device__ __forceinline__ void write_output(const WidePart& part, const float (&sum)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = row() + half * 8;
      const float factor = part.has_rows() ? 1.0f / sum[half] : 0.0f;
      Bf16* const to = p.absorbed.out +
                       (int64_t{part.token} * p.absorbed.heads + part.first_head + head) * kLatent +
                       kOwn * kHalf;
#pragma unroll
      for (int n = 0; n < 32; n += 4) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = (n + i) * 4 + half * 2;
          words[i] = floats_to_bf16x2(values[at] * factor, values[at + 1] * factor);
        }
        transpose_quad(words);
        if (head < part.num_heads)
          *reinterpret_cast<uint4*>(to + (n + lane() % 4) * 8) = {words[0], words[1], words[2],
                                                                  words[3]};
      }
    }
  }

  __device__ __forceinline__ void write_slot(const WidePart& part, const float (&sum)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t to = int64_t{part.slot} * kWideRows + row() + half * 8;
      if (kOwn == 0 && lane() % 4 == 0) p.stats[to] = {row_max[half], sum[half]};
      float* const from_column = p.values + to * kLatent + kOwn * kHalf + lane() % 4 * 2;
#pragma unroll
      for (int n = 0; n < 32; ++n)
        *reinterpret_cast<float2*>(from_column + n * 8) = {values[n * 4 + half * 2],
                                                           values[n * 4 + half * 2 + 1]};
    }
  }

  __device__ __forceinline__ void end_part(const WidePart& part) {
    float sum[2];
    add_sums(sum);
    part.slot < 0 ? write_output(part, sum) : write_slot(part, sum);
    ++parts;
  }
};

}  // namespace fathom::cuda::absorbed
