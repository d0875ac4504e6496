#pragma once
// mla_query, fused: from compressed queries to what absorbed attention reads of a step's tokens, and the rows of the
// cache that they get, to the bit what its parts give one after the other (ops/rms_norm.h, ops/linear.h, ops/rope.h,
// ops/kv_cache.h, ops/head_linear.h):
//   q         = linear(rms_norm(q_a), q_b)               quantised rows where q_b is f8_e4m3; without q_a: q as given
//   kv_append(rows)
//   q_rope    = rope(q[..., nope:], rows.table)          in its place in q
//   q_latent  = head_linear(q[..., :nope], w_uk)
//
//   q_a       act[tokens, q_lora_rank]; null: q      rows may be strided
//   q_norm    f32|bf16[q_lora_rank]                  null without q_a, as q_b
//   q_b       act, bf16 or f8_e4m3[heads * (nope + rope), q_lora_rank]
//   q         act[tokens, heads, nope + rope]        in place; with q_a what is not rotated may be anything afterwards
//   w_uk      [heads, kv_lora_rank, nope]            as head_linear's weight
//   rows      of kv_append; its table is that of the queries too
//   q_latent  act[tokens, heads, kv_lora_rank]
//   settled   all that this reads was there, and what it writes was done with, before the operator launched last began,
//             so that it may run beside that one. REQUIRES with it: that was index_append (ops/index.h), or since
//             index_append_query there were only index_scores and top_rows
//
// A backend's entry takes some calls (Operator::takes), and all others are made of the parts.

#include "ops/kv_cache.h"
#include "ops/linear.h"

namespace fathom::ops {

struct MlaQueryArgs {
  tensor::Tensor q_a, q_norm;
  float q_eps = 1e-6f;
  Weight q_b;
  tensor::Tensor q;
  Weight w_uk;
  KvAppendArgs rows;
  tensor::Tensor q_latent;
  bool settled = false;
};

// REQUIRES: the stream's backend takes it.
void mla_query(const MlaQueryArgs& args, Stream& stream);

}  // namespace fathom::ops
