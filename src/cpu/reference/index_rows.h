#pragma once
// Pieces of the indexer's operators (ops/index.h) that take one row each, shared by the CPU backends: keys, queries,
// and the choice of rows.
//
//   append_key(args, token, scratch);                      // f32[2 * dim]
//   prepare_query(args, token, scratch);                   // f32[dim]
//   choose_rows(args, token, bins);                        // i32[kRowBins]
//
// Thread-safe for distinct tokens and scratch.

#include <cstdint>

#include "cpu/reference/visibility.h"
#include "ops/index.h"

namespace fathom::cpu::reference {

// A query token's sequence, and which of its rows it sees.
struct QueryPlace {
  int64_t sequence = 0;
  int64_t kv_len = 0;  // 0 = padding
  Visibility visible{};

  // One past the last row that may be visible.
  int64_t end() const { return kv_len == 0 ? 0 : visible.end(kv_len); }
  int64_t num_visible() const;
};
// Aborts where a length does not fit max_rows or the queries.
QueryPlace place_of(const ops::IndexQueries& queries, int64_t token, int64_t max_rows);

void append_key(const ops::IndexAppendArgs& args, int64_t token, float* scratch);
void prepare_query(const ops::IndexQueryArgs& args, int64_t token, float* scratch);

inline constexpr int64_t kRowBins = 2048;
void choose_rows(const ops::TopRowsArgs& args, int64_t token, int32_t* bins);

// Rises with the rank of a score: NaN above all, -0 as +0.
uint32_t score_key(float score);

}  // namespace fathom::cpu::reference
