#pragma once
// Tiles that stream through a block of absorbed attention (mla_absorbed_stream.cu, even/): which warps do what with
// them, where they lie in shared memory, and their scores.
//
//   Turn<StreamLayout<false>> turn{shared};               // the block's first tile
//   scorer.begin_item(group);  scorer.score(turn);        // queries to registers; waits for the tile
//
// Internal to cuda/attention/.

#include <type_traits>

#include "cuda/attention/absorbed_f8.cuh"
#include "cuda/attention/absorbed_shares.cuh"
#include "cuda/mma/panels.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda::absorbed {

inline constexpr int kProducerWarps = 2, kSoftmaxWarps = 2;
inline constexpr int kHelpers = 32 * (kProducerWarps + kSoftmaxWarps);
static_assert(kHelpers == 128);  // a warpgroup: registers move between those

template <bool kIsF8>
struct Roles {
  static constexpr bool kHasScorers = kIsF8;  // they keep the registers that they are launched with
  static constexpr int kScorers = kHasScorers ? 128 : kThreads;
  static constexpr int kFirstHelper = kThreads + (kHasScorers ? kScorers : 0);
  static constexpr int kStreamThreads = kFirstHelper + kHelpers;
  static constexpr int kRegisters = kHasScorers ? 160 : 216;  // of those that add values
  static constexpr int kHelperRegisters = kHasScorers ? 64 : 72;
};

template <bool kIsF8>
struct StreamLayout {
  static constexpr int kRows = kStreamRows;
  static constexpr int kStages = kIsF8 ? 5 : 4;
  // Tiles whose scores or weights are there, or on their way, at a time.
  static constexpr int kAhead = kIsF8 ? 3 : 2;
  static_assert(kAhead < kStages);
  static constexpr int kSourceRowBytes = kIsF8 ? kF8RowBytes : kDim * 2;
  static constexpr int kStageRowBytes = kIsF8 ? kF8RowBytes : kRowBytes;
  static constexpr int kStageBytes = kTileRows * kStageRowBytes;
  static constexpr int kScoreStride = 40;
  static constexpr int kScoreBytes = 4 * kRows * kScoreStride * 4;

  static constexpr int kScores = kStages * kStageBytes;         // of kAhead tiles
  static constexpr int kPair = kScores + kAhead * kScoreBytes;  // SplitTree's
  // Queries, until a warp has its own in registers.
  static constexpr int kQuery = kPair + kRows * kLatent * 4;
  static constexpr int kWeightBytes = kRows * kWeightStride * 2;
  static constexpr int kWeights = kQuery + kRows * kRowBytes;       // of kAhead tiles
  static constexpr int kStats = kWeights + kAhead * kWeightBytes;   // of the last tiles of splits
  static constexpr int kFactors = kStats + 2 * kAhead * kRows * 8;  // of kAhead tiles
  static constexpr int kWeightScales = kFactors + kAhead * kRows * 4;  // of each stage in f8
  // Barriers: a stage holds its tile, and its tile is done with; a tile's scores are there, and its weights.
  static constexpr int kFull = kWeightScales + (kIsF8 ? kStages * kWeightScaleBytes : 0);
  static constexpr int kEmpty = kFull + kStages * 8;
  static constexpr int kScored = kEmpty + kStages * 8;
  static constexpr int kWeighed = kScored + kAhead * 8;
  static constexpr int kFlag = kWeighed + kAhead * 8;
  static constexpr int kWalk = kFlag + 16;  // where the block begins
  static constexpr int kBytes = kWalk + sizeof(WalkState);
  static_assert(kPair % 16 == 0 && kScores % 16 == 0 && kFull % 8 == 0 && kWeightScales % 16 == 0);
  static_assert(kBytes <= 227 * 1024);
};

// A tile's number among all of this block's, as all roles count them: where it lies, and which use of that this is.
template <class Layout>
struct Turn {
  char* const shared;
  int tile = 0;

  __device__ __forceinline__ Turn ahead(int tiles) const { return {shared, tile + tiles}; }
  __device__ __forceinline__ int stage() const { return tile % Layout::kStages; }
  __device__ __forceinline__ int slot() const { return tile % Layout::kAhead; }

  __device__ __forceinline__ char* keys() const { return shared + stage() * Layout::kStageBytes; }
  __device__ __forceinline__ char* weight_scales() const {
    return shared + Layout::kWeightScales + stage() * kWeightScaleBytes;
  }
  __device__ __forceinline__ float* scores() const {
    return reinterpret_cast<float*>(shared + Layout::kScores + slot() * Layout::kScoreBytes);
  }
  __device__ __forceinline__ Bf16* weights() const {
    return reinterpret_cast<Bf16*>(shared + Layout::kWeights + slot() * Layout::kWeightBytes);
  }
  __device__ __forceinline__ float* factors() const {
    return reinterpret_cast<float*>(shared + Layout::kFactors + slot() * Layout::kRows * 4);
  }
  // Maxima and sums of the split that ends with the tile. They are read before the values of kAhead tiles on are added,
  // so after twice as many they may be written again.
  __device__ __forceinline__ float2* stats() const {
    return reinterpret_cast<float2*>(shared + Layout::kStats) +
           tile % (2 * Layout::kAhead) * Layout::kRows;
  }

  __device__ __forceinline__ uint32_t full() const {
    return shared_address(shared + Layout::kFull) + stage() * 8;
  }
  __device__ __forceinline__ uint32_t empty() const {
    return shared_address(shared + Layout::kEmpty) + stage() * 8;
  }
  __device__ __forceinline__ uint32_t scored() const {
    return shared_address(shared + Layout::kScored) + slot() * 8;
  }
  __device__ __forceinline__ uint32_t weighed() const {
    return shared_address(shared + Layout::kWeighed) + slot() * 8;
  }
  __device__ __forceinline__ uint32_t stage_phase() const { return tile / Layout::kStages & 1; }
  __device__ __forceinline__ uint32_t slot_phase() const { return tile / Layout::kAhead & 1; }
};

// What a warp's lanes have written and read is so for whoever waits at the barrier.
__device__ __forceinline__ void warp_arrive(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

// Rows [first, end) of a stage that no copy fills become zeros, by the lanes of a warp: a weight of 0 times what lay
// there may be NaN. What they read as scores does not matter.
__device__ __forceinline__ void clear_rows(char* stage, int first, int end) {
  for (int i = static_cast<int>(threadIdx.x % 32); i < (end - first) * (kLatent / 8); i += 32)
    *reinterpret_cast<uint4*>(stage + (first + i / (kLatent / 8)) * kRowBytes +
                              i % (kLatent / 8) * 16) = {};
  publish_to_products();  // and to the copy engine, which writes here next
}

template <bool kIsF8>
__device__ __forceinline__ void begin_barriers(const char* shared) {
  using Layout = StreamLayout<kIsF8>;
  if (threadIdx.x > 0) return;
  const uint32_t at = shared_address(shared);
#pragma unroll
  for (int stage = 0; stage < Layout::kStages; ++stage) {
    barrier_init(at + Layout::kFull + stage * 8, kProducerWarps);
    barrier_init(at + Layout::kEmpty + stage * 8, kThreads / 32);
  }
#pragma unroll
  for (int slot = 0; slot < Layout::kAhead; ++slot) {
    barrier_init(at + Layout::kScored + slot * 8, Roles<kIsF8>::kScorers / 32);
    barrier_init(at + Layout::kWeighed + slot * 8, kSoftmaxWarps);
  }
  barriers_are_ready();
}

inline constexpr int kScoreBarrier = 2;

// What computes scores: four warps of their own that have a quarter of the inner dimension each, or the eight that add
// values, of which two share one.
template <bool kIsF8>
struct Scorer {
  using Layout = StreamLayout<kIsF8>;
  static constexpr int kThreads = Roles<kIsF8>::kScorers, kShares = kThreads / 128;
  static constexpr int kHalves = kTileRows / 16 / kShares;

  const AbsorbedParams& p;
  char* const shared;
  const int thread;
  std::conditional_t<kIsF8, F8Queries, Queries<1>> queries{};

  __device__ __forceinline__ int quarter() const { return thread / 32 / kShares; }

  // REQUIRES: nobody needs the queries that lie there.
  __device__ __forceinline__ void begin_queries(const QueryGroup& group) const {
    load_queries<Layout, kThreads>(p, group, shared, thread);
    commit_copies();
  }
  __device__ __forceinline__ void begin_item(const QueryGroup& group, bool has_begun = false) {
    if (!has_begun) {
      named_barrier_sync(kScoreBarrier, kThreads);
      begin_queries(group);
    }
    wait_copies<0>();
    named_barrier_sync(kScoreBarrier, kThreads);
    queries.init(shared + Layout::kQuery, quarter());
  }
  // REQUIRES: the scores that lie in the tile's place are done with.
  __device__ __forceinline__ void score(const Turn<Layout>& turn) const {
    const int first_row = thread / 32 % kShares * 16;
    barrier_wait(turn.full(), turn.stage_phase());
    if constexpr (kIsF8) {
      score_f8_tile<Layout, kHalves>(queries, turn.keys(), turn.scores(), quarter(), first_row);
    } else {
      score_tile<1, Layout, kHalves>(queries, shared_address(turn.keys()), turn.scores(), quarter(),
                                     first_row);
    }
    warp_arrive(turn.scored());
  }
};

// By the warps that add values: those of the tile whose turn it is, scaled by what the softmax says. Where these warps
// compute scores, too, the tile's that is kAhead behind follow if it is there; else Scorer is not used.
template <bool kIsF8, class Scorer>
__device__ __forceinline__ void add_tile(const Scorer& scorer, Turn<StreamLayout<kIsF8>>& turn,
                                         bool scores_ahead, float (&values)[1][8][4]) {
  barrier_wait(turn.full(), turn.stage_phase());
  barrier_wait(turn.weighed(), turn.slot_phase());
  if constexpr (kIsF8) {
    add_f8_values(turn.keys(), turn.weight_scales(), turn.weights(), turn.factors(), values);
  } else {
    add_values<1>(shared_address(turn.keys()), turn.weights(), turn.factors(), values);
  }
  warp_arrive(turn.empty());
  if constexpr (!Roles<kIsF8>::kHasScorers)
    if (scores_ahead) scorer.score(turn.ahead(StreamLayout<kIsF8>::kAhead));
  ++turn.tile;
}

// Behind a split's last tile: values as they are, and the split's statistics.
template <bool kIsF8>
__device__ __forceinline__ void end_split(const Turn<StreamLayout<kIsF8>>& turn, Node& node) {
  if constexpr (kIsF8) end_f8_values(node.values);
  const float2* const stats = turn.ahead(-1).stats();
  const int g = threadIdx.x % 32 / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 s = stats[g + half * 8];
    node.rows[half] = {s.x, s.y};
  }
}

}  // namespace fathom::cuda::absorbed
