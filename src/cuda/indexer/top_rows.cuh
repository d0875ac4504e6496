#pragma once
// What the two kernels of top_rows share: top_rows.cu has those of few tokens and of the longest rows, and of all
// others top_rows_many.cu. Internal to cuda/indexer/.

#include "cuda/indexer/query_place.cuh"
#include "ops/stream.h"

namespace fathom::cuda {

struct TopRowsParams {
  const float* scores;  // [token_end - token_begin, max_rows]
  QueryTokens queries;
  int64_t max_rows;  // 0: there are no scores, since every token keeps all rows
  int32_t* rows;     // [tokens, topk]
  int32_t* counts;
  int64_t counts_stride;
  int topk;
  int block_shift;  // where blocks of the cache have a power of two of rows
  uint32_t*
      bits;  // instead of rows and counts: of tokens bits_stride apart. Null = none; top_rows_of_many alone
  int64_t bits_stride;
};

// A block for a token; blocks of the cache of any size.
void top_rows_of_many(const TopRowsParams& p, ops::Stream& stream);

// Rises with the rank of a score: NaN above all, -0 as +0. 0 is none's.
__device__ __forceinline__ uint32_t score_rank(float score) {
  const int32_t bits = __float_as_int(__fadd_rn(score, 0.0f));  // which makes -0 a +0
  const uint32_t rank = static_cast<uint32_t>(bits ^ (bits >> 31 | INT32_MIN));
  return isnan(score) ? 0xffffffffu : rank;
}

__device__ __forceinline__ int32_t flat_row(const QueryTokens& queries, const int32_t* table,
                                            int row) {
  const int block = row / queries.block_tokens;
  return queries.block_at(table, block) * queries.block_tokens + row - block * queries.block_tokens;
}

// A token that keeps all rows that it sees, by the threads of a block.
__device__ __forceinline__ void keep_all(const TopRowsParams& p, const QueryPlace& place, int token,
                                         int32_t* rows) {
  const int32_t* const table = p.queries.table(place.sequence);
  const int count = place.num_visible();
  const int before = place.is_tree ? min(place.first_query_row, count) : count;
  for (int i = static_cast<int>(threadIdx.x); i < p.topk; i += static_cast<int>(blockDim.x))
    if (i < before || i >= count) rows[i] = i < before ? flat_row(p.queries, table, i) : -1;
  if (place.is_tree && static_cast<int>(threadIdx.x) < place.num_queries && place.kv_len > 0) {
    const uint64_t bit = uint64_t{1} << threadIdx.x;
    if ((place.mask & bit) != 0)
      rows[before + __popcll(place.mask & (bit - 1))] =
          flat_row(p.queries, table, place.first_query_row + static_cast<int>(threadIdx.x));
  }
  if (threadIdx.x == 0) p.counts[token * p.counts_stride] = count;
}

// The last one kept.
struct Threshold {
  uint32_t rank = 0;
  uint32_t num_equal = 0;  // rows of just this rank that are kept
};

}  // namespace fathom::cuda
