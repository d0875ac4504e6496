#include "layers/mla.h"

#include <vector>

#include "layers/absorbed_weights.h"
#include "layers/linear_pair.h"
#include "layers/sum_of_parts.h"
#include "ops/chain.h"
#include "ops/head_linear.h"
#include "ops/kv_cache.h"
#include "ops/linear.h"
#include "ops/mla.h"
#include "ops/rope.h"

namespace fathom::layers {
namespace {

using tensor::DType;
using tensor::Tensor;

// Derived weights of all heads, in FP8 with their scales.
ops::Weight derived_f8(WeightBuilder& builder, int64_t heads, int64_t out, int64_t in) {
  return {.data = builder.derived(DType::kF8E4M3, {heads, out, in}),
          .scale = builder.derived(DType::kF32,
                                   {heads, ops::num_scale_blocks(out), ops::num_scale_blocks(in)})};
}

// Whether no token of the step takes the expanded form.
bool is_absorbed(const ForwardBatch& batch) {
  return batch.num_absorbed_tokens == batch.num_tokens();
}

}  // namespace

Mla::Mla(const std::string& prefix, const config::ModelConfig& config, WeightBuilder& builder,
         const std::optional<NamedRows>& beside_q_a)
    : num_heads_(config.num_attention_heads / builder.rank().tp->size()),
      qk_nope_head_dim_(config.qk_nope_head_dim),
      v_head_dim_(config.v_head_dim),
      kv_lora_rank_(config.kv_lora_rank),
      softmax_scale_(config::make_rope_params(config).softmax_scale),
      has_q_lora_(config.q_lora_rank.has_value()),
      absorbed_scale_(config.quantization_config && config.quantization_config->scale_ue8m0
                          ? weights::BlockScale::kPowerOfTwo
                          : weights::BlockScale::kAny),
      fused_(builder.fused()) {
  const int64_t hidden_size = config.hidden_size;
  const int64_t all_heads = config.num_attention_heads, q_dim = all_heads * config.qk_head_dim();
  const weights::Shard q_heads = builder.tp_rows(config.qk_head_dim());
  if (has_q_lora_) {
    const int64_t q_lora_rank = *config.q_lora_rank;
    std::vector<NamedRows> of_hidden = {{prefix + "q_a_proj.weight", q_lora_rank}};
    if (beside_q_a) of_hidden.push_back(*beside_q_a);
    q_a_ = builder.joined(of_hidden, hidden_size);
    q_a_layernorm_ = make_rms_norm(prefix + "q_a_layernorm.weight", q_lora_rank, config, builder);
    q_proj_ = builder.matrix(prefix + "q_b_proj.weight", q_dim, q_lora_rank, q_heads);
  } else {
    q_proj_ = builder.matrix(prefix + "q_proj.weight", q_dim, hidden_size, q_heads);
  }
  kv_a_proj_ = builder.matrix(prefix + "kv_a_proj_with_mqa.weight", config.kv_dim(), hidden_size);
  kv_a_layernorm_ = make_rms_norm(prefix + "kv_a_layernorm.weight", kv_lora_rank_, config, builder);
  const int64_t kv_head_dim = qk_nope_head_dim_ + v_head_dim_;
  kv_b_proj_ = builder.plain_matrix(prefix + "kv_b_proj.weight", all_heads * kv_head_dim,
                                    kv_lora_rank_, builder.tp_rows(kv_head_dim));
  if (builder.types().fp8_absorbed) {
    w_uk_ = derived_f8(builder, num_heads_, kv_lora_rank_, qk_nope_head_dim_);
    w_uv_ = derived_f8(builder, num_heads_, v_head_dim_, kv_lora_rank_);
  } else {
    w_uk_.data =
        builder.derived(builder.types().plain, {num_heads_, kv_lora_rank_, qk_nope_head_dim_});
    w_uv_.data = kv_b_heads().slice(1, qk_nope_head_dim_, kv_head_dim);
  }
  for (int part = 0; part < builder.rank().tp_parts(); ++part)
    o_proj_.push_back(builder.matrix(prefix + "o_proj.weight", hidden_size, all_heads * v_head_dim_,
                                     builder.tp_columns(v_head_dim_, part)));
}

Tensor Mla::kv_b_heads() const {
  return kv_b_proj_.reshape({num_heads_, qk_nope_head_dim_ + v_head_dim_, kv_lora_rank_});
}

void Mla::finish_loading(ops::Stream& stream) {
  if (w_uk_.data.dtype() == DType::kF8E4M3) {
    derive_absorbed_fp8(kv_b_heads(), {.w_uk = w_uk_, .w_uv = w_uv_}, absorbed_scale_, stream);
  } else {
    derive_w_uk(kv_b_heads(), w_uk_.data, stream);
  }
}

void Mla::forward(const NormedRows& x, const LayerStep& step, const Tensor& out) const {
  if (const std::optional<ops::MlaDecodeArgs> decode = decode_args(step)) {
    compress(x.input(), step);
    ops::mla_decode(*decode, step.stream);
    return project_out(decode->out, step, out);
  }
  const bool has_absorbed = make_queries(x.input(), {}, step);
  if (step.batch.num_absorbed_tokens > 0) {
    const TokenRange tokens{.begin = 0, .end = step.batch.num_absorbed_tokens};
    if (!has_absorbed) absorb(tokens, step);
    attend_absorbed(tokens, step);
  }
  attend_expanded(step);
  project_out(step, out);
}

bool Mla::make_queries(const ops::Activation& x,
                       const std::optional<ops::LinearPairArgs::Product>& beside,
                       const LayerStep& step) const {
  const ops::MlaQueryArgs whole = query_args(step, /*compressed=*/has_q_lora_ && !beside);
  if (!whole.q_a.is_null() && takes(whole, step)) {
    compress(x, step);
    ops::mla_query(whole, step.stream);
    return true;
  }
  const ops::MlaQueryArgs given = query_args(step, /*compressed=*/false);
  const bool is_one = takes(given, step);
  ops::in_chains(step.stream, [&] {
    project_down(x, step);
    if (!is_one) append_cache(step);
    project_queries(beside, step);
    if (is_one) return ops::mla_query(given, step.stream);
    ops::rope({.x = absorbed({0, step.batch.num_tokens()}, step).q_rope,
               .table = step.buffers.rope_table},
              step.stream);
  });
  return is_one;
}

void Mla::append_rows(const NormedRows& x, const LayerStep& step) const {
  ops::linear({.x = x.input(), .weight = kv_a_proj_, .out = step.buffers.mla.kv_a}, step.stream);
  append_cache(step);
}

bool Mla::reads_f8(const LayerStep& step) const {
  return o_proj_.size() == 1 && o_proj_[0].data.dtype() == DType::kF8E4M3 &&
         !step.buffers.mla.out_f8.is_null();
}

ops::MlaQueryArgs Mla::query_args(const LayerStep& step, bool compressed) const {
  const MlaBuffers& buffers = step.buffers.mla;
  ops::MlaQueryArgs args;
  args.q = buffers.q;
  args.w_uk = w_uk_;
  args.rows = append_args(step);
  args.q_latent = buffers.q_latent;
  if (!compressed) return args;
  args.q_a = buffers.q_a;
  args.q_norm = q_a_layernorm_.weight;
  args.q_eps = q_a_layernorm_.eps;
  args.q_b = q_proj_;
  return args;
}

bool Mla::takes(const ops::MlaQueryArgs& args, const LayerStep& step) const {
  return fused_.mla_query && is_absorbed(step.batch) &&
         step.stream.backend().mla_query.has(args, step.stream);
}

CompressedRows Mla::compressed(const LayerStep& step) const {
  if (!has_q_lora_ || !fused_.rms_norm_quantize) return {};
  return {.values = step.buffers.mla.q_a, .norm = q_a_layernorm_.weight, .eps = q_a_layernorm_.eps};
}

bool Mla::absorbs_compressed(const LayerStep& step) const {
  return has_q_lora_ && takes(query_args(step, /*compressed=*/true), step);
}

void Mla::absorb_compressed(bool settled, const LayerStep& step) const {
  ops::MlaQueryArgs args = query_args(step, /*compressed=*/true);
  args.settled = settled;
  ops::mla_query(args, step.stream);
}

ops::HeadLinearQuantizeArgs Mla::out_args(const LayerStep& step) const {
  return {.x = step.buffers.mla.out_latent, .weight = w_uv_, .out = step.buffers.mla.out_f8};
}

bool Mla::quantises_out(const LayerStep& step) const {
  return fused_.head_linear_quantize && is_absorbed(step.batch) && reads_f8(step) &&
         step.stream.backend().head_linear_quantize.has(out_args(step), step.stream);
}

std::optional<ops::MlaDecodeArgs> Mla::decode_args(const LayerStep& step) const {
  const ForwardBatch& batch = step.batch;
  const MlaBuffers& buffers = step.buffers.mla;
  const int64_t sequences = batch.num_absorbed_sequences;
  const bool is_one = sequences == 1 && batch.tree_mask.is_null();
  const bool only_decodes =
      fused_.mla_decode && is_absorbed(batch) && (is_one || batch.num_absorbed_tokens == sequences);
  if (!only_decodes) return {};
  ops::MlaDecodeArgs args;
  args.w_uk = w_uk_;
  args.w_uv = w_uv_;
  args.rows = append_args(step);
  args.kv_len = batch.kv_len.slice(0, 0, sequences);
  args.block_tables = batch.tables().slice(0, 0, sequences);
  args.scale = softmax_scale_;
  args.out = buffers.out;
  if (reads_f8(step)) args.out = buffers.out_f8;
  if (has_q_lora_) {
    args.q_a = buffers.q_a;
    args.q_norm = q_a_layernorm_.weight;
    args.q_eps = q_a_layernorm_.eps;
    args.q_b = q_proj_;
  } else {
    args.q = buffers.q;
  }
  if (!step.stream.backend().mla_decode.has(args, step.stream)) return {};
  return args;
}

ops::LinearPairArgs::Product Mla::first_product(const LayerStep& step) const {
  const MlaBuffers& buffers = step.buffers.mla;
  if (!has_q_lora_)
    return {.weight = q_proj_,
            .out = buffers.q.reshape({buffers.q.dim(0), num_heads_ * buffers.q.dim(2)})};
  const bool has_more = q_a_.parts.size() > 1 && !q_a_.all.data.is_null();
  if (has_more) return {.weight = q_a_.all, .out = buffers.q_a_and_k};
  return {.weight = q_a_.parts[0], .out = buffers.q_a};
}

void Mla::compress(const ops::Activation& x, const LayerStep& step) const {
  const MlaBuffers& buffers = step.buffers.mla;
  linear_pair(fused_,
              {.x = x, .a = first_product(step), .b = {.weight = kv_a_proj_, .out = buffers.kv_a}},
              step.stream);
  if (q_a_.parts.size() > 1 && q_a_.all.data.is_null())
    ops::linear({.x = x, .weight = beside_q_a(), .out = step.buffers.index.k}, step.stream);
}

void Mla::project_down(const ops::Activation& x, const LayerStep& step) const {
  const MlaBuffers& buffers = step.buffers.mla;
  compress(x, step);
  if (!has_q_lora_) return;
  NormedRows normed{.values = buffers.q_a, .quantised = {}};
  if (fused_.rms_norm_quantize) normed = {.values = {}, .quantised = buffers.q_a_f8};
  q_a_layernorm_.forward(buffers.q_a, {}, normed, step.stream);
}

ops::Activation Mla::compressed_queries(const LayerStep& step) const {
  const MlaBuffers& buffers = step.buffers.mla;
  return fused_.rms_norm_quantize ? buffers.q_a_f8 : ops::Activation(buffers.q_a);
}

void Mla::project_queries(const std::optional<ops::LinearPairArgs::Product>& beside,
                          const LayerStep& step) const {
  if (!has_q_lora_) return;
  const Tensor q = step.buffers.mla.q;
  const Tensor rows = q.reshape({q.dim(0), num_heads_ * q.dim(2)});
  const ops::Activation x = compressed_queries(step);
  if (beside)
    return linear_pair(fused_, {.x = x, .a = {.weight = q_proj_, .out = rows}, .b = *beside},
                       step.stream);
  ops::linear({.x = x, .weight = q_proj_, .out = rows}, step.stream);
}

void Mla::project_out(const ops::Activation& heads_out, const LayerStep& step,
                      const Tensor& out) const {
  if (heads_out.is_quantised())
    return ops::linear({.x = heads_out, .weight = o_proj_[0], .out = out}, step.stream);
  const Tensor rows = heads_out.values.reshape({out.dim(0), num_heads_ * v_head_dim_});
  sum_of_parts(o_proj_.size(), out, step, [&](size_t part, const Tensor& to) {
    const int64_t columns = ops::row_values(o_proj_[part].data);
    const int64_t begin = static_cast<int64_t>(part) * columns;
    ops::linear({.x = rows.slice(1, begin, begin + columns), .weight = o_proj_[part], .out = to},
                step.stream);
  });
}

void Mla::project_out(const LayerStep& step, const Tensor& out) const {
  if (quantises_out(step)) return project_out(step.buffers.mla.out_f8, step, out);
  project_out(step.buffers.mla.out, step, out);
}

ops::KvAppendArgs Mla::append_args(const LayerStep& step) const {
  return {.kv_a = step.buffers.mla.kv_a,
          .weight = kv_a_layernorm_.weight,
          .eps = kv_a_layernorm_.eps,
          .table = step.buffers.rope_table,
          .kv_rows = step.batch.kv_rows,
          .cache = step.cache};
}

void Mla::append_cache(const LayerStep& step) const {
  ops::kv_append(append_args(step), step.stream);
}

AbsorbedTokens Mla::absorbed(const TokenRange& tokens, const LayerStep& step) const {
  const MlaBuffers& buffers = step.buffers.mla;
  const Tensor q = buffers.q.slice(0, tokens.begin, tokens.end);
  return {.q_latent = buffers.q_latent.slice(0, tokens.begin, tokens.end),
          .q_rope = q.slice(2, qk_nope_head_dim_, q.dim(2)),
          .out_latent = buffers.out_latent.slice(0, tokens.begin, tokens.end)};
}

void Mla::absorb(const TokenRange& tokens, const LayerStep& step) const {
  const Tensor q = step.buffers.mla.q.slice(0, tokens.begin, tokens.end);
  ops::head_linear({.x = q.slice(2, 0, qk_nope_head_dim_),
                    .weight = w_uk_,
                    .out = absorbed(tokens, step).q_latent},
                   step.stream);
}

void Mla::leave_latent(const TokenRange& tokens, const LayerStep& step) const {
  if (quantises_out(step)) return ops::head_linear_quantize(out_args(step), step.stream);
  ops::head_linear({.x = absorbed(tokens, step).out_latent,
                    .weight = w_uv_,
                    .out = step.buffers.mla.out.slice(0, tokens.begin, tokens.end)},
                   step.stream);
}

void Mla::attend_absorbed(const TokenRange& range, const LayerStep& step) const {
  const ForwardBatch& batch = step.batch;
  const int64_t sequences = batch.num_absorbed_sequences;
  const AbsorbedTokens tokens = absorbed(range, step);
  const ops::MlaAbsorbedArgs attention{.q_latent = tokens.q_latent,
                                       .q_rope = tokens.q_rope,
                                       .cache = step.cache,
                                       .query_start = batch.query_start.slice(0, 0, sequences + 1),
                                       .kv_len = batch.kv_len.slice(0, 0, sequences),
                                       .block_tables = batch.tables().slice(0, 0, sequences),
                                       .tree_mask = absorbed_tree_mask(batch),
                                       .plan = step.plan.absorbed,
                                       .scale = softmax_scale_,
                                       .out = tokens.out_latent};
  if (quantises_out(step)) {
    ops::HeadLinearQuantizeArgs both = out_args(step);
    both.attention = &attention;
    if (step.stream.backend().head_linear_quantize.has(both, step.stream))
      return ops::head_linear_quantize(both, step.stream);
  }
  ops::mla_absorbed(attention, step.stream);
  leave_latent(range, step);
}

void Mla::attend_expanded(const LayerStep& step) const {
  const MlaBuffers& buffers = step.buffers.mla;
  for (const std::vector<ops::ExpandedSegment>& segments : step.plan.expanded_calls) {
    const int64_t rows = segments.back().buffer_begin + segments.back().num_rows;
    const Tensor latent = buffers.latent.slice(0, 0, rows);
    const Tensor k_rope = buffers.k_rope.slice(0, 0, rows);
    const Tensor kv = buffers.kv.slice(0, 0, rows);
    ops::kv_gather({.cache = step.cache,
                    .block_tables = step.batch.block_tables,
                    .segments = segments,
                    .latent = latent,
                    .k_rope = k_rope},
                   step.stream);
    ops::linear({.x = latent,
                 .weight = {.data = kv_b_proj_, .scale = {}},
                 .out = kv.reshape({rows, kv_b_proj_.dim(0)})},
                step.stream);
    ops::mla_expanded({.q = buffers.q,
                       .kv = kv,
                       .k_rope = k_rope,
                       .segments = segments,
                       .tree_mask = step.batch.tree_mask,
                       .kept = step.plan.has_bits ? step.buffers.index.kept : Tensor(),
                       .kept_from = step.buffers.index.topk(),
                       .scale = softmax_scale_,
                       .state_max = buffers.state_max,
                       .state_sum = buffers.state_sum,
                       .state_acc = buffers.state_acc,
                       .out = buffers.out},
                      step.stream);
  }
}

}  // namespace fathom::layers
