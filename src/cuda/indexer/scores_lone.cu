// index_scores of tokens that share no keys, for keys of 128 values in blocks of 64 rows and up to 64 heads: decodes.
// The products are those of scores_tensor_cores.cu, to the bit. Bound by reading the keys, 132 bytes each, and of few
// rows by latency: so lengths, queries and places of keys are asked for at once, as if the token's number were its
// sequence's, and a warpgroup has its next two blocks of keys under way.
//
// What is settled, lengths, places and all keys but the last ones, is read before the wait. Where every block of keys
// can have a multiprocessor, thread blocks are single warpgroups, which find room beside those of the kernel before.
//
// Grid: parts of the sequence's rows x query tokens. Shared memory: 9.4 KB.

#include <algorithm>

#include "cuda/indexer/score_products.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kKeysAhead = 2;

// A warpgroup's blocks of keys: every step-th from the first on, since the others' lie beside.
struct LoneShare {
  int first, step;

  __device__ __forceinline__ explicit LoneShare(int warpgroups)
      : first(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0) *
                  static_cast<int>(gridDim.x) +
              static_cast<int>(blockIdx.x)),
        step(warpgroups * static_cast<int>(gridDim.x)) {}
};

// The first places in the table of a sequence that may be the token's.
struct FirstPlaces {
  int sequence;
  int32_t block[kKeysAhead];

  __device__ __forceinline__ void load(const IndexScoresParams& p, const LoneShare& share,
                                       int of_sequence) {
    sequence = of_sequence;
    const int32_t* const table = p.queries.table(sequence);
#pragma unroll
    for (int i = 0; i < kKeysAhead; ++i) {
      const int at = share.first + i * share.step;
      block[i] = int64_t{at} * kKeyRows < p.max_rows ? table[at] : 0;
    }
  }
};

// The scores of the token's rows, its queries being in the tile.
__device__ __forceinline__ void score_rows(const IndexScoresParams& p, const QueryPlace& place,
                                           const TileShared& tile, const LoneShare& share,
                                           Keys (&keys)[kKeysAhead], int key_blocks,
                                           float* scores) {
  const int32_t* const table = p.queries.table(place.sequence);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row_in_block = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4 + lane % 2 * 8;
  const uint32_t queries = descriptor_word(shared_address(tile.queries));
  // That the token sees without a question.
  const int seen_blocks =
      __shfl_sync(0xffffffffu, (place.is_tree ? place.first_query_row : place.end()) / kKeyRows, 0);
  for (int first = share.first; first < key_blocks; first += kKeysAhead * share.step) {
#pragma unroll
    for (int i = 0; i < kKeysAhead; ++i) {
      const int block = first + i * share.step, ahead = block + kKeysAhead * share.step;
      if (block >= key_blocks) break;
      const int32_t next = ahead < key_blocks ? table[ahead] : 0;
      uint32_t a[4][4];
      keys[i].operands(a);
      const float scale = 0.5f * (threadIdx.x % 2 == 0 ? keys[i].scale[0] : keys[i].scale[1]);
      float sums[32];
      begin_score(sums, a, queries);
      mma_wait<0>(sums);
      keep_operand(a);
      if (ahead < key_blocks) keys[i].load(p, next);
      const float score = sum_of_lane(weighted(sums, tile.weights), {}) * scale;
      const int row = block * kKeyRows + row_in_block;
      if (block < seen_blocks) {
        if (lane % 4 < 2) scores[row] = score;
      } else if (lane % 4 < 2 && row < place.kv_len) {
        scores[row] = row < place.end() && place.sees(row) ? score : minus_infinite_score();
      }
    }
  }
}

// Blocks of keys in [begin, end) of those that the warpgroup begins with.
__device__ __forceinline__ void load_first(const IndexScoresParams& p, const LoneShare& share,
                                           const FirstPlaces& places, int begin, int end,
                                           Keys (&keys)[kKeysAhead]) {
#pragma unroll
  for (int i = 0; i < kKeysAhead; ++i) {
    const int block = share.first + i * share.step;
    if (block >= begin && block < end) keys[i].load(p, places.block[i]);
  }
}

template <int kGroups>
__global__ void __launch_bounds__(kGroups * 128, 1)
    index_scores_lone_kernel(const __grid_constant__ IndexScoresParams p) {
  extern __shared__ char shared[];
  constexpr int kThreads = kGroups * 128, kVectors = kQueryVectors / kThreads;
  static_assert(kHeads <= kThreads);
  let_next_start();
  const TileShared tile(shared, 1);
  const LoneShare share(kGroups);
  const int token = p.queries.token_begin + static_cast<int>(blockIdx.y);
  const auto thread = static_cast<int>(threadIdx.x);
  uint4 query[kVectors];
  float weight = 0.0f;
  const auto load_queries = [&] {
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int at = i * kThreads + thread;
      query[i] = query_vector(p, token, at / 8, at % 8);
    }
    if (thread < kHeads) weight = head_weight(p, token, thread);
  };
  if (!p.queries.settled) load_queries();
  FirstPlaces places;
  places.load(p, share, min(token, p.queries.seqs - 1));
  const QueryPlace place = place_of(p.queries, token);
  if (place.num_visible() <= p.topk) return wait_for_previous();
  if (place.sequence != places.sequence) places.load(p, share, place.sequence);
  const int key_blocks = __shfl_sync(0xffffffffu, (place.end() + kKeyRows - 1) / kKeyRows, 0);
  // Those that hold no key of this step.
  const int settled =
      p.queries.settled ? __shfl_sync(0xffffffffu, place.first_query_row / kKeyRows, 0) : 0;
  Keys keys[kKeysAhead];
  load_first(p, share, places, 0, min(settled, key_blocks), keys);
  if (p.queries.settled) load_queries();
  load_first(p, share, places, settled, key_blocks, keys);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int at = i * kThreads + thread;
    put_query(tile.queries, at / 8, at % 8, query[i]);
  }
  if (thread < kHeads) put_weight(tile.weights, thread, weight);
  publish_to_products();
  __syncthreads();
  float* const scores = p.scores + blockIdx.y * p.max_rows;
  score_rows(p, place, tile, share, keys, key_blocks, scores);
  // Rows that the token does not see, behind the last block of which it sees some.
  for (int row = key_blocks * kKeyRows + static_cast<int>(blockIdx.x) * kThreads + thread;
       row < place.kv_len; row += static_cast<int>(gridDim.x) * kThreads)
    scores[row] = minus_infinite_score();
}

}  // namespace

void score_lone_tokens(const IndexScoresParams& p, ops::Stream& stream) {
  const int64_t tokens = p.queries.token_end - p.queries.token_begin;
  if (tokens == 0) return;
  const int64_t key_blocks = p.max_rows / kKeyRows;
  const bool are_few = key_blocks * tokens <= num_multiprocessors();
  const int64_t parts =
      are_few ? key_blocks : std::clamp<int64_t>(num_multiprocessors() / tokens, 1, key_blocks);
  launch(are_few ? index_scores_lone_kernel<1> : index_scores_lone_kernel<kWarpgroups>,
         {.grid = dim3(static_cast<unsigned>(parts), static_cast<unsigned>(tokens)),
          .block = are_few ? 128u : unsigned{kScoreThreads},
          .shared_bytes = TileShared::bytes(1)},
         stream, p);
}

}  // namespace fathom::cuda
