#pragma once
// StepBuffers: the tensors that one step computes in, shared by all layers, cut from one arena for
// the largest step; for_tokens() gives the views of a smaller one. Phases that never overlap
// (attention and FFN, absorbed and expanded) share memory.
//
//   tensor::Arena measure;
//   StepBuffers::carve(measure, sizes);                     // measure.peak_bytes()
//   StepBuffers buffers = StepBuffers::carve(arena, sizes);
//
// Heads and FFN widths are the rank's part of the model's. Of several lanes (docs/contracts/parallel.md) each has
// tokens of its own, and FFNs compute those of all: what goes through them has the rows of all lanes.
//
// Views only; the arena's memory must outlive them.

#include <optional>

#include "comm/rank_context.h"
#include "config/model_config.h"
#include "layers/fused_ops.h"
#include "ops/activation.h"
#include "ops/index_cache.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"

namespace fathom::layers {

struct MlaBuffers {
  tensor::Tensor q_a;  // act[tokens, q_lora_rank]                       null without q_lora_rank
  // act[tokens, q_lora_rank + index_head_dim]: q_a, and behind it the indexer's k. Null without an indexer.
  tensor::Tensor q_a_and_k;
  // q_a quantised; null where nothing is quantised ahead of its use.
  ops::Activation q_a_f8;
  tensor::Tensor q;     // act[tokens, heads, qk_head_dim]
  tensor::Tensor kv_a;  // act[tokens, kv_dim]
  tensor::Tensor out;   // act[tokens, heads, v_head_dim]
  // [tokens, heads * v_head_dim] of ops::mla_decode: quantised, in the memory of q_latent. Null like q_a_f8.
  ops::Activation out_f8;
  tensor::Tensor q_latent, out_latent;  // act[tokens, heads, kv_lora_rank]  absorbed
  tensor::Tensor latent;  // act[expand_chunk_tokens, kv_lora_rank]         expanded, as the rest
  tensor::Tensor k_rope;  // act[expand_chunk_tokens, qk_rope_head_dim]
  tensor::Tensor kv;      // act[expand_chunk_tokens, heads, qk_nope_head_dim + v_head_dim]
  tensor::Tensor state_max, state_sum;  // f32[tokens, heads]
  tensor::Tensor state_acc;             // f32[tokens, heads, v_head_dim]
};

// Of an indexer; all null without one. In the memory of absorbed attention, which runs together with it.
struct IndexBuffers {
  tensor::Tensor k;        // act[tokens, index_head_dim]  of MlaBuffers::q_a_and_k
  tensor::Tensor q;        // act[tokens, index_n_heads, index_head_dim]
  tensor::Tensor q_f8;     // f8_e4m3, the same shape; null where cached keys are f32
  tensor::Tensor weights;  // f32[tokens, index_n_heads]
  tensor::Tensor
      scores;  // f32[at least max_rows]  of as many tokens at once as fit; null where nobody has to choose
  // act[rows, kv_dim]  a sequence's rows of the cache widened, as many as have room where queries and scores were: what
  // lists of a prompt are read from. Null where that is no gain.
  tensor::Tensor copy;
  tensor::Tensor rows;    // i32[tokens, min(index_topk, max_rows)]
  tensor::Tensor counts;  // i32[tokens]
  // i32[tokens, words]  instead of rows and counts, of a prompt's tokens in the expanded form (ops::TopRowsArgs::kept),
  // which needs it: not in that memory. Null where none is.
  tensor::Tensor kept;

  // What index_scores reads.
  const tensor::Tensor& queries() const { return q_f8.is_null() ? q : q_f8; }
  int64_t topk() const { return rows.is_null() ? 0 : rows.dim(1); }
  // Of a sequence that kept has bits of.
  int64_t kept_rows() const { return kept.is_null() ? 0 : kept.dim(1) * 32; }
  int64_t copy_rows() const { return copy.is_null() ? 0 : copy.dim(0); }
};

// What the gate chose for each token.
struct RoutedRows {
  tensor::Tensor ids;      // i32[tokens, num_experts_per_tok]   null in dense models
  tensor::Tensor weights;  // f32[tokens, num_experts_per_tok]

  RoutedRows rows(int64_t begin, int64_t end) const {
    if (ids.is_null()) return {};
    return {.ids = ids.slice(0, begin, end), .weights = weights.slice(0, begin, end)};
  }
};

// Tokens: of all lanes.
struct FfnBuffers {
  tensor::Tensor gate_up;      // act[2 * tokens * widest FFN]  one row, shaped by each FFN
  tensor::Tensor gated;        // act[tokens * widest FFN]
  tensor::Tensor gated_f8;     // f8_e4m3[tokens * widest FFN]  null like q_a_f8
  tensor::Tensor gated_scale;  // f32[tokens * scale blocks of the widest FFN]
  RoutedRows routed;
};

struct StepBufferSizes {
  const config::ModelConfig* config = nullptr;
  const ops::Backend* backend = nullptr;
  FusedOps fused{};
  int64_t max_batch_tokens = 0;  // of all lanes together, any of which may have all of them
  int64_t expand_chunk_tokens = 0;
  int64_t max_rows = 0;  // of a sequence in the cache; read with an indexer
  std::optional<ops::IndexFormat> index{};
  tensor::DType cache = tensor::DType::kF32;  // of latent values; read with an indexer
  bool has_mtp = false;
  comm::RankContext rank{};

  int64_t heads() const { return config->num_attention_heads / rank.tp->size(); }
};

// The tokens of one lane among those of all.
struct LaneTokens {
  int64_t begin = 0, end = 0, of_all = 0;

  static LaneTokens alone(int64_t tokens) { return {.end = tokens, .of_all = tokens}; }
  int64_t count() const { return end - begin; }
};

// What goes through an FFN: normed rows with their experts, and what came out of it.
struct MlpRows {
  tensor::Tensor normed;      // act[tokens of all lanes, hidden_size]
  ops::Activation normed_f8;  // the same quantised, null like q_a_f8
  RoutedRows routed;
  tensor::Tensor branch;  // act[tokens of all lanes, hidden_size]
};

struct StepBuffers {
  tensor::Tensor rope_table;        // f32[tokens, qk_rope_head_dim]
  tensor::Tensor residual, branch;  // act[tokens, hidden_size]  the residual stream is their sum
  tensor::Tensor normed;            // act[tokens, hidden_size]
  ops::Activation normed_f8;        // the same quantised, null like q_a_f8
  RoutedRows routed;                // of this lane's tokens
  MlpRows all_lanes;          // branch, normed, normed_f8 and routed are this lane's rows of them
  tensor::Tensor hidden;      // act[tokens, hidden_size]  after the final norm
  tensor::Tensor mtp_input;   // act[tokens, 2 * hidden_size]  null without MTP
  tensor::Tensor mtp_hidden;  // act[tokens, hidden_size]
  // act[log2 of the most parts, tokens, hidden_size]  sums of a rank's parts (sum_of_parts.h), null where it has one
  tensor::Tensor part_sums;
  tensor::Tensor plan;  // u8[bytes] of ops::mla_plan, null where the backend has no such plan
  MlaBuffers mla;
  IndexBuffers index;
  FfnBuffers ffn;

  static StepBuffers carve(tensor::Arena& arena, const StepBufferSizes& sizes);
  // Views of as many rows as there are tokens, of every buffer that has one row per token.
  StepBuffers for_tokens(const LaneTokens& tokens) const;
};

}  // namespace fathom::layers
