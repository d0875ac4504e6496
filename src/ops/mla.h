#pragma once
// Multi-head latent attention over the paged latent cache (DeepSeek-V2 report, section 2.1; both forms are
// equal up to rounding). Sums and softmax in float32.
//
// Visibility, both forms: query token i of a sequence sees all rows before the sequence's first query
// token of this step, and, of this step's tokens, j <= i (causal) or, with tree_mask, those whose bit j is
// set in tree_mask[i], and always itself. A sequence with more than kMaxTreeTokens query tokens is causal; its
// masks are not read.
//
// mla_absorbed (decode): every head reads the latent rows themselves
//   score = (q_latent . c + q_rope . k_rope) * scale;  out = softmax(score) . c
//   q_latent      act[tokens, heads, kv_lora_rank]        q_nope absorbed through W_UK
//   q_rope        act[tokens, heads, qk_rope_head_dim]    rotated; may be strided
//   cache         u8[blocks, block_tokens, row_bytes] of a format (ops/kv_format.h); holds this step's rows
//                 already. c and k_rope are the stored values, f8 ones times their scale
//   query_start   i32[seqs + 1]     query tokens of sequence s: [query_start[s], query_start[s+1])
//   kv_len        i32[seqs]         rows of the sequence, this step's included, so >= its query tokens;
//                                   0 = padding, the out rows of its query tokens become 0
//   block_tables  i32[seqs, max_blocks]   rows may be strided; no sequence has more rows than its table's blocks
//   tree_mask     u64[tokens]       null = causal
//   out           act[tokens, heads, kv_lora_rank]
//
//   plan          null, or what mla_plan made of the same query_start, kv_len and tree_mask
//
// mla_plan, fused: what mla_absorbed decides by the lengths alone (how rows are split, what goes where), once per
// step instead of once per layer. A call with the plan gives the bits of one without.
//   query_start, kv_len, tree_mask   as in mla_absorbed; they stay as they are while the plan is used
//   plan          u8[at least mla_plan_bytes of these tokens, sequences and heads]
//
// mla_expanded (prefill): keys and values of rows of many sequences, which the caller gathered (kv_gather) and
// expanded through kv_b_proj. Call it for consecutive chunks of a sequence's rows, one segment of a sequence in a
// call; the running softmax state is kept between calls, and the last one writes the output. For chunk-invariant
// results the caller cuts a sequence's rows at absolute multiples of one size.
//   q            act[tokens, heads, qk_nope_head_dim + qk_rope_head_dim]   rotated
//   kv           act[rows, heads, qk_nope_head_dim + v_head_dim]           k_nope ++ v of each row
//   k_rope       act[rows, qk_rope_head_dim]
//   segments     as in kv_gather (ops/kv_cache.h); their queries are distinct tokens (checked)
//   tree_mask    u64[tokens]   read for segments that say so; null = none does
//   kept         i32[tokens, words]   bits of top_rows (ops/index.h); null = none. Of queries whose row is kept_from or
//                one behind it: they see what their bits have, too. Rows that they leave out have to be finite.
//                REQUIRES of segments with such queries: no tree_mask, and row_begin is a multiple of kKeptRows
//   state_max    f32[tokens, heads]              running maximum
//   state_sum    f32[tokens, heads]              running sum of exponentials
//   state_acc    f32[tokens, heads, v_head_dim]  running weighted values
//   out          act[tokens, heads, v_head_dim]  state_acc / state_sum, of segments that are the last; null: none is
//   A chunk may be invisible to some queries: their state stays as it is. Tokens of no segment keep state and output.

#include "ops/backend.h"
#include "ops/kv_cache.h"
#include "tensor/tensor.h"

namespace fathom::ops {

inline constexpr int kMaxTreeTokens = 64;  // bits of a mask

struct MlaPlanShape {
  int64_t tokens = 0, sequences = 0, heads = 0;
};
struct MlaPlanArgs {
  tensor::Tensor query_start, kv_len, tree_mask;
  int64_t tokens = 0, heads = 0;
  int64_t max_rows = 0;  // that a sequence's block table has room for
  tensor::Tensor plan;
};
void mla_plan(const MlaPlanArgs& args, Stream& stream);

struct MlaAbsorbedArgs {
  tensor::Tensor q_latent, q_rope;
  KvCache cache;
  tensor::Tensor query_start, kv_len, block_tables, tree_mask, plan;
  float scale = 1.0f;
  tensor::Tensor out;
};
void mla_absorbed(const MlaAbsorbedArgs& args, Stream& stream);
// The checks of a call, also of one that is a part of another operator.
void expect_absorbed(const MlaAbsorbedArgs& args, const Stream& stream);

struct MlaExpandedArgs {
  tensor::Tensor q, kv, k_rope;
  std::span<const ExpandedSegment> segments{};
  tensor::Tensor tree_mask;
  tensor::Tensor kept{};
  int64_t kept_from = 0;
  float scale = 1.0f;
  tensor::Tensor state_max, state_sum, state_acc, out;
};
void mla_expanded(const MlaExpandedArgs& args, Stream& stream);

}  // namespace fathom::ops
