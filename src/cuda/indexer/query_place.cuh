#pragma once
// Which rows a query token sees, on the device: the rule of ops/mla.h.
//
//   const QueryPlace place = place_of(queries, token);
//   for (int row = 0; row < place.end(); ++row) if (place.sees(row)) ...
//
// Internal to cuda/indexer/.

#include <cstdint>

#include "ops/index.h"
#include "ops/mla.h"

namespace fathom::cuda {

struct QueryTokens {
  const int32_t* query_start;   // [seqs + 1]
  const int32_t* kv_len;        // [seqs]
  const int32_t* block_tables;  // [seqs, blocks], strided; null = blocks of the sequence
  const uint64_t* tree_mask;    // [tokens]; null = causal
  int64_t table_stride;
  int seqs, block_tokens;
  int token_begin, token_end;
  bool settled;  // IndexQueries::settled: all of this may be read before the wait

  __device__ __forceinline__ const int32_t* table(int sequence) const {
    return block_tables + sequence * table_stride;
  }
  // Entry `block` of a table, where there is one.
  __device__ __forceinline__ int32_t block_at(const int32_t* table, int block) const {
    return block_tables == nullptr ? block : table[block];
  }
};

inline QueryTokens query_tokens(const ops::IndexQueries& queries, int64_t block_tokens) {
  return {.query_start = queries.query_start.as<int32_t>(),
          .kv_len = queries.kv_len.as<int32_t>(),
          .block_tables = queries.block_tables.as<int32_t>(),
          .tree_mask = queries.tree_mask.is_null() ? nullptr : queries.tree_mask.as<uint64_t>(),
          .table_stride = queries.block_tables.stride(0),
          .seqs = static_cast<int>(queries.kv_len.dim(0)),
          .block_tokens = static_cast<int>(block_tokens),
          .token_begin = static_cast<int>(queries.token_begin),
          .token_end = static_cast<int>(queries.token_end),
          .settled = queries.settled};
}

struct QueryPlace {
  int sequence = 0, kv_len = 0;  // 0 = padding
  int first_query_row = 0, num_queries = 0, query = 0;
  bool is_tree = false;
  uint64_t mask = 0;  // of a tree: the queries that it sees, itself included

  // One past the last row that may be visible.
  __device__ __forceinline__ int end() const {
    return kv_len == 0 ? 0 : is_tree ? kv_len : first_query_row + query + 1;
  }
  // REQUIRES: row < end().
  __device__ __forceinline__ bool sees(int row) const {
    const int j = row - first_query_row;
    return !is_tree || j < 0 || ((mask >> j) & 1) != 0;
  }
  __device__ __forceinline__ int num_visible() const {
    return is_tree && kv_len > 0 ? first_query_row + __popcll(mask) : end();
  }
};

// A sequence of the step: its query tokens and its rows.
struct TokenSequence {
  int number, begin, end, kv_len;
};

__device__ __forceinline__ TokenSequence sequence_at(const QueryTokens& queries, int token) {
  // A step that decodes one token of each sequence: the token's number is the sequence's. All is asked for at once.
  if (token < queries.seqs) {
    const TokenSequence s{token, queries.query_start[token], queries.query_start[token + 1],
                          queries.kv_len[token]};
    if (s.begin == token && s.end == token + 1) return s;
  }
  int low = 0, high = queries.seqs;  // start[low] <= token < start[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (queries.query_start[middle] <= token ? low : high) = middle;
  }
  return {low, queries.query_start[low], queries.query_start[low + 1], queries.kv_len[low]};
}
__device__ __forceinline__ int sequence_of(const QueryTokens& queries, int token) {
  return sequence_at(queries, token).number;
}

__device__ __forceinline__ QueryPlace place_of(const QueryTokens& queries, int token) {
  const TokenSequence s = sequence_at(queries, token);
  QueryPlace place;
  place.sequence = s.number;
  if (token >= s.end) return place;  // behind all sequences: padding
  place.kv_len = s.kv_len;
  place.num_queries = s.end - s.begin;
  place.first_query_row = place.kv_len - place.num_queries;
  place.query = token - s.begin;
  place.is_tree = queries.tree_mask != nullptr && place.num_queries <= ops::kMaxTreeTokens;
  if (place.is_tree) {
    const uint64_t all = ~uint64_t{0} >> (ops::kMaxTreeTokens - place.num_queries);
    place.mask = (queries.tree_mask[token] & all) | uint64_t{1} << place.query;
  }
  return place;
}

}  // namespace fathom::cuda
