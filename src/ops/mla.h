#pragma once
// Multi-head latent attention over the paged latent cache (DeepSeek-V2 report, section 2.1; both forms are
// equal up to rounding). Sums and softmax in float32.
//
// Visibility, both forms: query token i of a sequence sees all rows before the sequence's first query
// token of this step, and, of this step's tokens, j <= i (causal) or, with tree_mask, those whose bit j is
// set in tree_mask[i], and always itself. A sequence with more than kMaxTreeTokens query tokens is causal; its
// masks are not read. REQUIRES of mla_expanded with tree_mask: at most that many queries.
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
//   block_tables  i32[seqs, max_blocks]
//   tree_mask     u64[tokens]       null = causal
//   out           act[tokens, heads, kv_lora_rank]
//
// mla_expanded (prefill): one sequence, keys and values of rows [key_begin, key_begin + keys), which the
// caller expanded through kv_b_proj. Call it for consecutive chunks of rows; the running softmax state is
// kept between calls, then mla_finish writes the output. For chunk-invariant results the caller cuts
// chunks at absolute multiples of one size.
//   q        act[queries, heads, qk_nope_head_dim + qk_rope_head_dim]   rotated
//   kv       act[keys, heads, qk_nope_head_dim + v_head_dim]            k_nope ++ v of each row
//   k_rope   act[keys, qk_rope_head_dim]
//   query_begin  position index (row number) of query 0; row query_begin + i is query i's own
//   tree_mask    u64[queries]; null = causal
//   state_max    f32[queries, heads]             running maximum;  first = true starts afresh
//   state_sum    f32[queries, heads]             running sum of exponentials
//   state_acc    f32[queries, heads, v_head_dim] running weighted values
//   A chunk may be invisible to some queries: their state stays as it is.
// mla_finish: out = state_acc / state_sum
//   out      act[queries, heads, v_head_dim]

#include "ops/backend.h"
#include "ops/kv_format.h"
#include "tensor/tensor.h"

namespace fathom::ops {

inline constexpr int64_t kMaxTreeTokens = 64;  // bits of a mask

struct MlaAbsorbedArgs {
  tensor::Tensor q_latent, q_rope;
  KvCache cache;
  tensor::Tensor query_start, kv_len, block_tables, tree_mask;
  float scale = 1.0f;
  tensor::Tensor out;
};
void mla_absorbed(const MlaAbsorbedArgs& args, Stream& stream);

struct MlaExpandedArgs {
  tensor::Tensor q, kv, k_rope;
  int64_t query_begin = 0, key_begin = 0;
  tensor::Tensor tree_mask;
  float scale = 1.0f;
  bool first = false;
  tensor::Tensor state_max, state_sum, state_acc;
};
void mla_expanded(const MlaExpandedArgs& args, Stream& stream);

struct MlaFinishArgs {
  tensor::Tensor state_sum, state_acc, out;
};
void mla_finish(const MlaFinishArgs& args, Stream& stream);

}  // namespace fathom::ops
