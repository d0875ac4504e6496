// index_scores for keys of 128 values in blocks of 64 rows, up to 64 heads. A warpgroup multiplies a block of keys with
// the heads of a query token: 64 x 64 x 128 e4m3, keys in registers straight from the cache, queries in shared memory,
// where they stay for all of a thread block's keys. Then each thread adds its columns of ReLU times weight, and four
// lanes share out the scores of two rows of two tokens.
//
// Decode is bound by reading the keys, 132 bytes each. Prompts are bound by tensor cores: 1.05 MFLOP a product, 128
// cycles of a multiprocessor, beside which lie some 100 issue slots in each of its quarters. Four warpgroups hide what
// each waits for; they leave a thread 128 registers.
//
// The order of a row's bytes in a product is free, as long as keys and queries agree: a lane loads 32 bytes of a row
// side by side, and queries are laid out to match (place_of_word).
//
// Grid: parts of the sequence's rows x tiles of query tokens. Shared memory: 8.3 KB a query token of a tile.

#include <algorithm>

#include "cuda/indexer/score_products.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kMostTileTokens = 16;

// Tokens [first, first + count) with their weights.
__device__ __forceinline__ void load_queries(const IndexScoresParams& p, int first, int count,
                                             const TileShared& tile) {
  for (int i = threadIdx.x; i < count * kQueryVectors; i += kScoreThreads) {
    const int token = i / kQueryVectors, head = i % kQueryVectors / 8, vector = i % 8;
    put_query(tile.queries + token * kQueryBytes, head, vector,
              query_vector(p, first + token, head, vector));
  }
  for (int i = threadIdx.x; i < count * kHeads; i += kScoreThreads)
    put_weight(tile.weights + i / kHeads * kTokenWeights, i % kHeads,
               head_weight(p, first + i / kHeads, i % kHeads));
}

// The tokens of a tile that belong to one sequence and have scores at all.
struct TileRun {
  int first_token = 0,
      count = 0;        // of all tokens; count: up to the sequence's last one in the tile
  int end_row = 0;      // one past the last row that one of them sees
  int seen_blocks = 0;  // of keys, from the first on, which all of them score and see
};

// What is asked of a token for each of its scores.
struct alignas(16) RunToken {
  int kv_len,
      end;  // rows that have a score at all, and rows that the token sees, but for those that a tree hides
  int is_tree, is_scored;
};

// Where each token of a run stands. They lie in shared memory because every thread needs them one after another. One
// more, which has no scores, is beside the last of an odd number.
struct RunPlaces {
  QueryPlace place[kMostTileTokens];
  RunToken token[kMostTileTokens + 1];
};

// Where a warpgroup is in its share of a run: a share of the pairs of tokens of all blocks of keys, block by block, so
// it may begin and end within a block.
struct Share {
  int block, pair, end_block, end_pair;  // the last block has its pairs up to end_pair

  // Everything comes from one lane, so that the compiler sees that a warp stays together: products between branches
  // else wait.
  __device__ __forceinline__ Share(int blocks, int pairs) {
    const int64_t all = int64_t{blocks} * pairs;
    const int64_t shares = int64_t{gridDim.x} * kWarpgroups;
    const int64_t mine = blockIdx.x * kWarpgroups + threadIdx.x / 128;
    const int begin = static_cast<int>(all * mine / shares),
              end = static_cast<int>(all * (mine + 1) / shares);
    block = __shfl_sync(0xffffffffu, begin / pairs, 0);
    pair = __shfl_sync(0xffffffffu, begin % pairs, 0);
    end_block = __shfl_sync(0xffffffffu, begin < end ? (end - 1) / pairs + 1 : begin / pairs, 0);
    end_pair = __shfl_sync(0xffffffffu, end - (end - 1) / pairs * pairs, 0);
  }
};

// A warpgroup's share of the keys.
struct Scoring {
  const IndexScoresParams& p;
  const TileShared& tile;
  const RunPlaces& run;
  float* scores;         // of the run's first token
  const int32_t* table;  // of the sequence's blocks
  int count;             // of the run's tokens
  Share share;

  __device__ __forceinline__ static int row_in_block() {
    const int lane = static_cast<int>(threadIdx.x) % 32,
              warp = static_cast<int>(threadIdx.x) / 32 % 4;
    return warp * 16 + lane / 4 + lane % 2 * 8;
  }
  // Of the two tokens of a pair, whose score this lane writes.
  __device__ __forceinline__ static int token_in_pair() {
    return static_cast<int>(threadIdx.x) % 4 / 2;
  }

  // A score of row `row` and token i of the run.
  __device__ __forceinline__ void write(float score, int i, int row) const {
    const RunToken token = run.token[i];
    if (token.is_scored == 0 || row >= token.kv_len) return;
    const bool is_seen = row < token.end && (token.is_tree == 0 || run.place[i].sees(row));
    scores[i * p.max_rows + row] = is_seen ? score : minus_infinite_score();
  }

  // Blocks up to `until_block`. kAllSee: which every token of the run scores and sees. A loop has keys of its own: two
  // that share them move them, so that they are waited for where they were asked for.
  template <bool kAllSee>
  __device__ __forceinline__ void walk(int until_block) {
    if (share.block >= until_block) return;
    Keys next;
    next.load(p, table[share.block]);
    const uint32_t queries = descriptor_word(shared_address(tile.queries));
    const int64_t two_tokens = 2 * p.max_rows;
    for (; share.block < until_block; ++share.block) {
      uint32_t a[4][4];
      next.operands(a);
      const float scale = 0.5f * (threadIdx.x % 2 == 0 ? next.scale[0] : next.scale[1]);
      const int row = share.block * kKeyRows + row_in_block();
      const bool is_last = share.block + 1 >= share.end_block;
      if (share.block + 1 < until_block) next.load(p, table[share.block + 1]);
      int i = 2 * share.pair;
      const int end = is_last ? min(2 * share.end_pair, count) : count;
      share.pair = 0;
      const float* weights = tile.weights + i * kTokenWeights;
      uint32_t b = queries + i * kQueryWords;
      float* to = scores + (i + token_in_pair()) * p.max_rows + row;
      float even[32], odd[32];
      begin_score(even, a, b);
      for (; i + 2 < end; i += 2) {
        begin_score(odd, a, b + kQueryWords);
        b += 2 * kQueryWords;
        mma_wait<1>(even);
        const RowSums first = weighted(even, weights);
        begin_score(even, a, b);
        mma_wait<1>(odd);
        const float score = sum_of_lane(first, weighted(odd, weights + kTokenWeights)) * scale;
        weights += 2 * kTokenWeights;
        if constexpr (kAllSee) {
          *to = score;
          to += two_tokens;
        } else {
          write(score, i + token_in_pair(), row);
        }
      }
      RowSums first, second;
      if (i + 1 < end) {
        begin_score(odd, a, b + kQueryWords);
        mma_wait<1>(even);
        first = weighted(even, weights);
        mma_wait<0>(odd);
        second = weighted(odd, weights + kTokenWeights);
      } else {
        mma_wait<0>(even);
        first = weighted(even, weights);
      }
      const float score = sum_of_lane(first, second) * scale;
      if constexpr (kAllSee) {
        if (i + token_in_pair() < end) *to = score;
      } else {
        write(score, i + token_in_pair(), row);
      }
      keep_operand(a);
    }
  }
};

__device__ __forceinline__ Scoring begin_scoring(const IndexScoresParams& p, const TileShared& tile,
                                                 const RunPlaces& run, const TileRun& tokens) {
  const int blocks = (tokens.end_row + kKeyRows - 1) / kKeyRows;
  const int count = __shfl_sync(0xffffffffu, tokens.count, 0);
  return {.p = p,
          .tile = tile,
          .run = run,
          .scores = p.scores + (tokens.first_token - p.queries.token_begin) * p.max_rows,
          .table = p.queries.table(run.place[0].sequence),
          .count = count,
          .share = Share(blocks, (count + 1) / 2)};
}

// Rows that nobody in the run sees.
__device__ __forceinline__ void hide_rows(const IndexScoresParams& p, const RunPlaces& run,
                                          const TileRun& tokens, int first_row) {
  for (int i = 0; i < tokens.count; ++i) {
    if (run.token[i].is_scored == 0) continue;
    float* const scores = p.scores + (tokens.first_token + i - p.queries.token_begin) * p.max_rows;
    for (int row = first_row + static_cast<int>(blockIdx.x) * kScoreThreads +
                   static_cast<int>(threadIdx.x);
         row < run.place[i].kv_len; row += static_cast<int>(gridDim.x) * kScoreThreads)
      scores[row] = minus_infinite_score();
  }
}

__global__ void __launch_bounds__(kScoreThreads, 1)
    index_scores_kernel(const __grid_constant__ IndexScoresParams p) {
  extern __shared__ char shared[];
  __shared__ RunPlaces run;
  let_next_start();
  const TileShared tile(shared, p.tile_tokens);
  wait_for_previous();
  const int tile_begin = p.queries.token_begin + static_cast<int>(blockIdx.y) * p.tile_tokens;
  const int tile_end = min(tile_begin + p.tile_tokens, p.queries.token_end);
  for (TileRun tokens{.first_token = tile_begin}; tokens.first_token < tile_end;
       tokens.first_token += tokens.count) {
    const int sequence = sequence_of(p.queries, tokens.first_token);
    tokens.count = max(1, min(tile_end, p.queries.query_start[sequence + 1]) - tokens.first_token);
    __syncthreads();  // nobody reads the run before
    if (static_cast<int>(threadIdx.x) < tokens.count) {
      const QueryPlace place =
          place_of(p.queries, tokens.first_token + static_cast<int>(threadIdx.x));
      run.place[threadIdx.x] = place;
      if (threadIdx.x == 0) run.token[tokens.count].is_scored = 0;
      run.token[threadIdx.x] = {.kv_len = place.kv_len,
                                .end = place.end(),
                                .is_tree = place.is_tree,
                                .is_scored = place.num_visible() > p.topk};
    }
    __syncthreads();
    tokens.end_row = 0;
    int seen_rows = static_cast<int>(p.max_rows);
    for (int i = 0; i < tokens.count; ++i) {
      const RunToken& token = run.token[i];
      if (token.is_scored != 0) tokens.end_row = max(tokens.end_row, token.end);
      seen_rows = token.is_scored == 0 || token.is_tree != 0 ? 0 : min(seen_rows, token.end);
    }
    tokens.seen_blocks = seen_rows / kKeyRows;
    if (tokens.end_row == 0) continue;
    Scoring scoring = begin_scoring(p, tile, run, tokens);
    load_queries(p, tokens.first_token, tokens.count, tile);
    publish_to_products();
    __syncthreads();
    const int seen = __shfl_sync(0xffffffffu, tokens.seen_blocks, 0);
    scoring.walk<true>(min(seen, scoring.share.end_block));
    scoring.walk<false>(scoring.share.end_block);
    hide_rows(p, run, tokens, (tokens.end_row + kKeyRows - 1) / kKeyRows * kKeyRows);
  }
}

// Tokens of one sequence that share a tile of keys.
int tile_tokens(const QueryTokens& queries) {
  const int tokens = queries.token_end - queries.token_begin;
  return tokens < 64 ? 4 : kMostTileTokens;
}

}  // namespace

bool can_score_by_tensor_cores(const ops::IndexScoresArgs& args) {
  const auto is_aligned = [](const tensor::Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.data()) % 16 == 0;
  };
  return args.cache.dim() == kKeyDim && args.cache.block_tokens() == kKeyRows &&
         args.q.dim(1) <= kHeads && is_aligned(args.q) && is_aligned(args.cache.values);
}

void score_by_tensor_cores(IndexScoresParams p, ops::Stream& stream) {
  // Unless most sequences of the call have several.
  if (p.queries.token_end - p.queries.token_begin < 2 * p.queries.seqs)
    return score_lone_tokens(p, stream);
  p.tile_tokens = tile_tokens(p.queries);
  const int64_t tiles = num_tiles(p.queries.token_end - p.queries.token_begin, p.tile_tokens);
  if (tiles == 0) return;
  const int64_t parts =
      std::clamp<int64_t>(num_multiprocessors() / tiles, 1, p.max_rows / kKeyRows);
  launch(index_scores_kernel,
         {.grid = dim3(static_cast<unsigned>(parts), static_cast<unsigned>(tiles)),
          .block = kScoreThreads,
          .shared_bytes = TileShared::bytes(p.tile_tokens)},
         stream, p);
}

}  // namespace fathom::cuda
