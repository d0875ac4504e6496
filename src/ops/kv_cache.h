#pragma once
// The latent cache of MLA: one row per token, shared by all heads (DeepSeek-V2 report, section 2.1).
//   row = rmsnorm(c) ++ rope(k_rope),  c = kv_a[:kv_lora_rank], k_rope = kv_a[kv_lora_rank:]
// Blocks of block_tokens rows; flat row = block_id * block_tokens + offset.
//
// kv_append: writes the rows of this step
//   kv_a    act[tokens, kv_dim]     output of kv_a_proj_with_mqa; kv_dim = kv_lora_rank + qk_rope_head_dim
//   weight  f32|bf16[kv_lora_rank]  kv_a_layernorm
//   table   f32[tokens, qk_rope_head_dim]   of ops/rope.h
//   kv_rows i64[tokens]             flat row; -1 = padding, writes nothing
//   cache   u8[blocks, block_tokens, row_bytes] of a format (ops/kv_format.h)   written in place
//   REQUIRES: kv_rows pairwise distinct except for -1.
//
// kv_gather: reads rows of many sequences side by side for expanded attention; f8 values times their scale
//   block_tables  i32[seqs, max_blocks]
//   segments      in rising order of buffer_begin, which follow each other without gaps from 0 on (checked)
//   latent        act[rows, kv_lora_rank]         rows = what the segments have together; rows may be strided
//   k_rope        act[rows, qk_rope_head_dim]     rows may be strided: beside latent's they are rows of a cache of act
//
// Segments are numbers of the host, read before the call returns.

#include <span>

#include "ops/backend.h"
#include "ops/kv_format.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct KvAppendArgs {
  tensor::Tensor kv_a, weight;
  float eps = 1e-6f;
  tensor::Tensor table, kv_rows;
  KvCache cache;
};
void kv_append(const KvAppendArgs& args, Stream& stream);

// One sequence's share of a call of kv_gather and mla_expanded: some of its rows, and the queries that see them.
struct ExpandedSegment {
  int64_t sequence_idx = 0;             // row of block_tables
  int64_t row_begin = 0, num_rows = 0;  // rows of the sequence: the keys
  int64_t buffer_begin = 0;             // where they stand in latent, k_rope and kv
  int64_t token_begin = 0;              // its queries in q and in the state
  int64_t num_tokens = 0;
  int64_t query_begin = 0;     // row number of query 0; query i's own row is query_begin + i
  bool first = false;          // the state starts afresh
  bool last = false;           // the output is written; the state may be anything then
  bool has_tree_mask = false;  // else causal; REQUIRES num_tokens <= kMaxTreeTokens
};

struct KvGatherArgs {
  KvCache cache;
  tensor::Tensor block_tables;
  std::span<const ExpandedSegment> segments{};
  tensor::Tensor latent, k_rope;
};
void kv_gather(const KvGatherArgs& args, Stream& stream);

// For the boundary checks of operators that read or write a cache: rows of its format, whose values are
// kv_lora_rank + qk_rope_head_dim.
void expect_kv_cache(const KvCache& cache, int64_t kv_lora_rank, int64_t qk_rope_head_dim);
// Segments side by side in a buffer of so many rows.
void expect_segments(std::span<const ExpandedSegment> segments, int64_t buffer_rows);

}  // namespace fathom::ops
