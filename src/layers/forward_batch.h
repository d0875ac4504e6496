#pragma once
// ForwardBatch: what one step of the model computes, in tensors of the device plus the few numbers
// the host needs to launch it. Sequences whose attention runs absorbed come first, then the
// expanded ones; tokens follow in the order of sequences, so each form sees one range of tokens.
//
//   batch.token_ids = ...; batch.positions = ...; batch.kv_rows = ...;   // ops/step.h fills them
//   batch.num_absorbed_sequences = 2; batch.num_absorbed_tokens = 2;      // two decodes
//   batch.expanded.push_back({.token_begin = 2, .num_tokens = 300, .sequence_idx = 2});
//
// Plain data. The tensors must stay until the step has run.
//
// Which rows a query token sees: ops/mla.h. A tree mask covers the whole batch or is null; a batch
// with a mask writes causal sequences as bits 0..i. An absorbed sequence of more than ops::kMaxTreeTokens query tokens
// is causal whatever its masks say.

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace fathom::layers {

// A sequence whose attention runs expanded.
struct ExpandedSequence {
  // Its query tokens are [token_begin, token_begin + num_tokens) of the batch.
  int64_t token_begin = 0;
  int64_t num_tokens = 0;
  int64_t kv_begin = 0;        // rows in the cache before this step
  int64_t sequence_idx = 0;    // row of block_tables
  bool has_tree_mask = false;  // read tree_mask for it; REQUIRES num_tokens <= ops::kMaxTreeTokens
};

// Tokens that a draft layer goes on with behind its attention, where nobody reads what comes of the others.
struct KeptTokens {
  tensor::Tensor rows;     // i32[kept]  of the batch's tokens
  tensor::Tensor kv_rows;  // i64[kept]  theirs
  // act[kept, hidden_size]  where they come out; null = all tokens are kept
  tensor::Tensor out;
  std::vector<int64_t> lane_starts;  // as a batch's
};

struct ForwardBatch {
  tensor::Tensor token_ids;  // i32[tokens]
  tensor::Tensor positions;  // i32[tokens]
  tensor::Tensor kv_rows;    // i64[tokens]  flat cache row, -1 = padding
  tensor::Tensor tree_mask;  // u64[tokens]  null = causal

  // Per sequence, absorbed ones first. query_start and kv_len are read for absorbed sequences, by an indexer for all.
  tensor::Tensor
      query_start;  // i32[>= num_absorbed_sequences + 1]  starts with 0; with an indexer [sequences + 1]
  tensor::Tensor
      kv_len;  // i32[>= num_absorbed_sequences]  rows with this step's; 0 = padding; or [sequences]
  tensor::Tensor block_tables;  // i32[sequences, max_blocks]
  // Of each table, which hold all rows of its sequence; 0 = all may. The fewer, the better attention knows what it has
  // to do.
  int64_t num_table_blocks = 0;

  int64_t num_absorbed_sequences = 0, num_absorbed_tokens = 0;
  std::vector<ExpandedSequence> expanded;

  // i64[lanes + 1]: where the tokens of each lane begin among those of all, this one's between its own and the next.
  // Empty = there is one lane. A lane may have no token, while another has.
  std::vector<int64_t> lane_starts;
  KeptTokens kept;  // of a draft layer

  int64_t num_tokens() const { return token_ids.dim(0); }
  // i32[sequences, blocks]; rows are strided.
  tensor::Tensor tables() const {
    return num_table_blocks == 0 ? block_tables : block_tables.slice(1, 0, num_table_blocks);
  }
};

}  // namespace fathom::layers
