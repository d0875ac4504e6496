#pragma once
// Multi-head latent attention (DeepSeek-V2 report, section 2.1) in both forms: absorbed, where
// heads read the latent rows through W_UK and W_UV, and expanded, where kv_b_proj makes keys and
// values of the rows chunk by chunk. ForwardBatch says which sequences use which.
//
// kv_b_proj is held in the plain weight type even in FP8 models, and W_UK and W_UV are parts of it:
// the two forms then use the same weights and differ by rounding alone. With
// WeightTypes::fp8_absorbed W_UK and W_UV are quantised parts of it and their rows are quantised
// too, while the expanded form stays as it is: then the forms differ by the error of a number
// format, and a prefix hit or chunk that changes the form can show in the tokens
// (docs/adr/0006).

#include <optional>
#include <string>

#include "config/model_config.h"
#include "config/rope.h"
#include "layers/attention.h"
#include "layers/weight_builder.h"
#include "ops/head_linear.h"
#include "ops/linear.h"
#include "ops/mla_decode.h"
#include "ops/mla_query.h"
#include "weights/convert.h"

namespace fathom::layers {

// Query tokens as heads read latent rows.
struct AbsorbedTokens {
  tensor::Tensor q_latent;    // act[tokens, heads, kv_lora_rank]
  tensor::Tensor q_rope;      // act[tokens, heads, qk_rope_head_dim]
  tensor::Tensor out_latent;  // act[tokens, heads, kv_lora_rank]
};

// Compressed queries before their norm. values: null where there are none, or where the norm writes over them.
struct CompressedRows {
  tensor::Tensor values, norm;
  float eps = 0;
};

class Mla : public Attention {
 public:
  // prefix: "model.layers.3.self_attn."  beside_q_a: a matrix whose product of the same rows is made with q_a_proj's,
  // behind it in MlaBuffers::q_a_and_k. REQUIRES with one: q_lora_rank.
  Mla(const std::string& prefix, const config::ModelConfig& config, WeightBuilder& builder,
      const std::optional<NamedRows>& beside_q_a = {});

  void forward(const NormedRows& x, const LayerStep& step,
               const tensor::Tensor& out) const override;
  void append_rows(const NormedRows& x, const LayerStep& step) const override;
  void finish_loading(ops::Stream& stream) override;
  bool reads_values() const override { return false; }

  // The parts of forward() in order, for kinds of attention that are made of them. The buffers are those of step.
  // q_a and kv_a, with what is beside q_a; then q_a and its norm, where it stays as it is until queries are made, and
  // whether the backend's operator makes all of them: then absorb_compressed() does. settled: of ops::MlaQueryArgs.
  void compress(const ops::Activation& x, const LayerStep& step) const;
  CompressedRows compressed(const LayerStep& step) const;
  bool absorbs_compressed(const LayerStep& step) const;
  void absorb_compressed(bool settled, const LayerStep& step) const;
  // Rows of the cache, and q, rotated; returns whether q_latent is made too, by the backend's operator for all of that.
  // beside: another product of the rows that q_b_proj reads. REQUIRES with one: q_lora_rank.
  bool make_queries(const ops::Activation& x,
                    const std::optional<ops::LinearPairArgs::Product>& beside,
                    const LayerStep& step) const;
  // Fills q_latent.
  void absorb(const TokenRange& tokens, const LayerStep& step) const;
  AbsorbedTokens absorbed(const TokenRange& tokens, const LayerStep& step) const;
  // Absorbed attention of the tokens to all rows that they see, and leave_latent().
  void attend_absorbed(const TokenRange& tokens, const LayerStep& step) const;
  // From out_latent to the heads' outputs. REQUIRES: where no token takes the expanded form, the tokens are all.
  void leave_latent(const TokenRange& tokens, const LayerStep& step) const;
  // The expanded calls of the plan.
  void attend_expanded(const LayerStep& step) const;
  void project_out(const LayerStep& step, const tensor::Tensor& out) const;
  float softmax_scale() const { return softmax_scale_; }
  const ops::Weight& beside_q_a() const { return q_a_.parts[1]; }

 private:
  // [heads, qk_nope_head_dim + v_head_dim, kv_lora_rank]
  tensor::Tensor kv_b_heads() const;
  // q_a_proj, q_proj without q_lora_rank, or all that is joined with it, and where its product goes.
  ops::LinearPairArgs::Product first_product(const LayerStep& step) const;
  // kv_a and, compressed and normalised, q_a with what is beside it; without q_lora_rank q itself.
  void project_down(const ops::Activation& x, const LayerStep& step) const;
  void append_cache(const LayerStep& step) const;
  // q, not rotated.
  void project_queries(const std::optional<ops::LinearPairArgs::Product>& beside,
                       const LayerStep& step) const;
  // From there to the heads' outputs, as one operator; none where the backend makes it of its parts.
  std::optional<ops::MlaDecodeArgs> decode_args(const LayerStep& step) const;
  // From compressed queries, or from q, to q_latent.
  ops::MlaQueryArgs query_args(const LayerStep& step, bool compressed) const;
  bool takes(const ops::MlaQueryArgs& args, const LayerStep& step) const;
  // Whether the heads' outputs are quantised for o_proj where they are made: the operator that does, and whether it
  // runs.
  bool reads_f8(const LayerStep& step) const;
  ops::HeadLinearQuantizeArgs out_args(const LayerStep& step) const;
  bool quantises_out(const LayerStep& step) const;
  // What q_b_proj reads. REQUIRES: q_lora_rank, project_down().
  ops::Activation compressed_queries(const LayerStep& step) const;
  ops::KvAppendArgs append_args(const LayerStep& step) const;
  void project_out(const ops::Activation& heads_out, const LayerStep& step,
                   const tensor::Tensor& out) const;

  int64_t num_heads_;  // the rank's
  int64_t qk_nope_head_dim_, v_head_dim_, kv_lora_rank_;
  float softmax_scale_;
  bool has_q_lora_;
  weights::BlockScale absorbed_scale_;  // of W_UK and W_UV in FP8
  FusedOps fused_;

  JoinedWeight q_a_;  // q_a_proj, and what is beside it; none without q_lora_rank
  RmsNorm q_a_layernorm_;
  ops::Weight q_proj_;  // q_b_proj, or q_proj without q_lora_rank
  ops::Weight kv_a_proj_;
  RmsNorm kv_a_layernorm_;
  tensor::Tensor kv_b_proj_;  // [heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]
  ops::Weight w_uk_;          // [heads, kv_lora_rank, qk_nope_head_dim]  transposed, derived
  ops::Weight w_uv_;  // [heads, v_head_dim, kv_lora_rank]  rows of kv_b_proj, derived in FP8
  std::vector<ops::Weight> o_proj_;  // [RankContext::tp_parts()]: columns of the rank's heads
};

}  // namespace fathom::layers
