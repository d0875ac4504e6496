#pragma once
// mla_decode, fused: everything between a layer's compressed queries and its heads' outputs in a step that decodes,
// one token of each sequence, or the last tokens of one (drafts), to the bit what its parts give one after the other
// (ops/rms_norm.h, ops/linear.h, ops/rope.h, ops/head_linear.h, ops/kv_cache.h, ops/mla.h):
//   q         = linear(rms_norm(q_a), q_b)               quantised rows where q_b is f8_e4m3; without q_a: q as given
//   kv_append(rows)
//   q_rope    = rope(q[..., nope:], rows.table)
//   q_latent  = head_linear(q[..., :nope], w_uk)
//   latent    = mla_absorbed(q_latent, q_rope, rows.cache, kv_len, block_tables, scale)
//   out       = head_linear(latent, w_uv)                quantised (ops/quantize_fp8.h) where out is
//
//   q_a           act[tokens, q_lora_rank]; null: q       rows may be strided
//   q_norm        f32|bf16[q_lora_rank]                   null without q_a, as q_b
//   q_b           act, bf16 or f8_e4m3[heads * (nope + rope), q_lora_rank]
//   q             act[tokens, heads, nope + rope]         not rotated, and stays so; null with q_a
//   w_uk, w_uv    [heads, kv_lora_rank, nope], [heads, v, kv_lora_rank]   as head_linear's weight
//   rows          of kv_append; its table is that of the queries too
//   kv_len        i32[seqs]                rows of a sequence, those of its tokens included, which are the last; 0 =
//                                          padding. seqs: tokens, or 1, whose tokens see their own row and those before
//   block_tables  i32[seqs, max_blocks]    rows may be strided
//   out           act[tokens, heads, v], or f8_e4m3[tokens, heads * v] with f32[tokens, ceil(heads * v / 128)]
// A token whose kv_rows is -1 has no place in the cache; if its kv_len is not 0 its outputs may be anything.
//
//   if (stream.backend().mla_decode.has(args, stream)) mla_decode(args, stream);      // else the parts
// Thread-safe for distinct streams.

#include "ops/activation.h"
#include "ops/kv_cache.h"
#include "ops/linear.h"

namespace fathom::ops {

struct MlaDecodeArgs {
  tensor::Tensor q_a, q_norm;
  float q_eps = 1e-6f;
  Weight q_b;
  tensor::Tensor q;
  Weight w_uk, w_uv;
  KvAppendArgs rows;
  tensor::Tensor kv_len, block_tables;
  float scale = 1.0f;
  Activation out;
};

// REQUIRES: the stream's backend takes it.
void mla_decode(const MlaDecodeArgs& args, Stream& stream);

}  // namespace fathom::ops
