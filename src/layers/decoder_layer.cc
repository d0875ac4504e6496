#include "layers/decoder_layer.h"

#include <vector>

#include "layers/attention_kind.h"

namespace fathom::layers {
namespace {

std::variant<DenseMlp, Moe> make_mlp(int layer_idx, const config::ModelConfig& config,
                                     WeightBuilder& builder) {
  const std::string prefix = layer_prefix(layer_idx) + "mlp.";
  if (config.is_moe_layer(layer_idx)) return Moe(prefix, config, builder);
  return DenseMlp(
      prefix, {.hidden_size = config.hidden_size, .intermediate_size = config.intermediate_size},
      builder);
}

}  // namespace

std::string layer_prefix(int layer_idx) {
  return "model.layers." + std::to_string(layer_idx) + ".";
}

DecoderLayer::DecoderLayer(int layer_idx, const config::ModelConfig& config, WeightBuilder& builder)
    : input_layernorm_(make_rms_norm(layer_prefix(layer_idx) + "input_layernorm.weight",
                                     config.hidden_size, config, builder)),
      post_attention_layernorm_(
          make_rms_norm(layer_prefix(layer_idx) + "post_attention_layernorm.weight",
                        config.hidden_size, config, builder)),
      attention_(make_attention(layer_prefix(layer_idx) + "self_attn.", config, builder)),
      mlp_(make_mlp(layer_idx, config, builder)),
      quantises_rows_(builder.fused().rms_norm_quantize) {}

NormedRows DecoderLayer::normalise_input(ResidualStream& residual_stream,
                                         const LayerStep& step) const {
  NormedRows normed{.values = step.buffers.normed, .quantised = {}};
  if (quantises_rows_) {
    normed.quantised = step.buffers.normed_f8;
    if (!attention_->reads_values()) normed.values = {};
  }
  residual_stream.normalise(input_layernorm_, normed, step.stream);
  return normed;
}

void DecoderLayer::append_rows(ResidualStream& residual_stream, const LayerStep& step) const {
  attention_->append_rows(normalise_input(residual_stream, step), step);
}

void DecoderLayer::attend(ResidualStream& residual_stream, const LayerStep& step) const {
  attention_->forward(normalise_input(residual_stream, step), step, residual_stream.branch());
  residual_stream.set_pending(*step.rank.tp);
}

void DecoderLayer::normalise_branch(ResidualStream& residual_stream, const LayerStep& step) const {
  NormedRows normed;
  if (quantises_rows_) normed.quantised = step.buffers.normed_f8;
  // The gate reads the rows as they are.
  if (is_moe() || !quantises_rows_) normed.values = step.buffers.normed;
  residual_stream.normalise(post_attention_layernorm_, normed, step.stream);
}

void DecoderLayer::choose_experts(const tensor::Tensor& x, const tensor::Tensor& kv_rows,
                                  const RoutedRows& to, ops::Stream& stream) const {
  if (const Moe* moe = std::get_if<Moe>(&mlp_)) moe->choose(x, kv_rows, to, stream);
}

void DecoderLayer::choose_own(const RowShares& shares, const LayerStep& step) const {
  const RoutedRows& routed = step.buffers.routed;
  if (step.batch.num_tokens() == 0 || !is_moe()) return;
  if (!shares.are_shared())
    return choose_experts(step.buffers.normed, step.batch.kv_rows, routed, step.stream);
  choose_experts(shares.own(step.buffers.normed), shares.own(step.batch.kv_rows),
                 routed.rows(shares.begin(), shares.end()), step.stream);
  step.rank.tp->all_gather_rows(routed.ids, shares.starts, step.stream);
  step.rank.tp->all_gather_rows(routed.weights, shares.starts, step.stream);
}

// The gate reads rows as they are, the experts of an FP8 model quantised ones: there each lane chooses the experts of
// its own tokens, and only what the experts read is gathered, a third of the bytes. Otherwise all rows are here, and
// choosing for all of them is quicker than gathering what was chosen.
NormedRows DecoderLayer::gather_lanes(const RowShares& shares, const LayerStep& step) const {
  const MlpRows& rows = step.buffers.all_lanes;
  comm::Communicator& lanes = *step.rank.dp;
  const std::vector<int64_t>& starts = step.batch.lane_starts;
  NormedRows all{.values = rows.normed, .quantised = {}};
  if (quantises_rows_) all = {.values = {}, .quantised = rows.normed_f8};
  if (lanes.size() == 1 || quantises_rows_) {
    choose_own(shares, step);
    if (lanes.size() == 1) return all;
    if (is_moe()) {
      lanes.all_gather_rows(rows.routed.ids, starts, step.stream);
      lanes.all_gather_rows(rows.routed.weights, starts, step.stream);
    }
    lanes.all_gather_rows(all.quantised.values, starts, step.stream);
    lanes.all_gather_rows(all.quantised.scale, starts, step.stream);
    return all;
  }
  lanes.all_gather_rows(all.values, starts, step.stream);
  // Which rows of other lanes are padding is not known here, and nobody reads what is computed for them.
  choose_experts(all.values, {}, rows.routed, step.stream);
  return all;
}

void DecoderLayer::forward(ResidualStream& residual_stream, const LayerStep& step) const {
  if (step.batch.num_tokens() > 0) attend(residual_stream, step);
  feed_forward(residual_stream, step);
}

// A lane without tokens computes its part of what the others bring.
void DecoderLayer::feed_forward(ResidualStream& residual_stream, const LayerStep& step) const {
  if (step.batch.num_tokens() > 0) normalise_branch(residual_stream, step);
  const NormedRows all = gather_lanes(residual_stream.shares(), step);
  const tensor::Tensor& out = step.buffers.all_lanes.branch;
  std::visit([&](const auto& mlp) { mlp.forward(all, step, out); }, mlp_);
  step.rank.dp->reduce_scatter_rows(out, step.batch.lane_starts, step.stream);
  residual_stream.set_pending(*step.rank.tp);
}

}  // namespace fathom::layers
