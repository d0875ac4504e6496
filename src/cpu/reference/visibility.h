#pragma once
// Which rows a query token sees (the rule of ops/mla.h), shared by both forms of attention.
//
//   const Visibility visible{.first_query_row = kv_len - num_queries, .query = i, .tree_mask =
//   mask}; for (int64_t row = 0; row < visible.end(kv_len); ++row) if (visible.sees(row)) ...
//
// Plain data.

#include <cstdint>

#include "ops/mla.h"

namespace fathom::cpu::reference {

struct Visibility {
  int64_t first_query_row = 0;          // row of the sequence's query token 0 of this step
  int64_t query = 0;                    // index of this query token in the sequence's
  const uint64_t* tree_mask = nullptr;  // of this query token; null = causal

  // One past the last row that may be visible, of `rows`.
  int64_t end(int64_t rows) const {
    const int64_t limit = first_query_row + query + 1;
    return tree_mask != nullptr || limit > rows ? rows : limit;
  }
  // REQUIRES: row < end(rows).
  bool sees(int64_t row) const {
    const int64_t j = row - first_query_row;
    if (tree_mask == nullptr || j < 0 || j == query) return true;
    return j < ops::kMaxTreeTokens && ((*tree_mask >> j) & 1) != 0;
  }
};

}  // namespace fathom::cpu::reference
