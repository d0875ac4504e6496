#pragma once
// DecoderLayer: norm, attention, norm, FFN or MoE, each adding to the residual stream.
//
//   DecoderLayer layer(layer_idx, config, builder);
//   layer.forward(residual_stream, step);
//
// Immutable after finish_loading(), thread-safe.

#include <memory>
#include <variant>

#include "config/model_config.h"
#include "layers/attention.h"
#include "layers/ffn.h"
#include "layers/moe.h"
#include "layers/rms_norm.h"

namespace fathom::layers {

class DecoderLayer {
 public:
  DecoderLayer(int layer_idx, const config::ModelConfig& config, WeightBuilder& builder);

  void forward(ResidualStream& residual_stream, const LayerStep& step) const;
  // Its halves, which may have different rows: attention of this lane's tokens, one at least; norm and FFN or MoE.
  void attend(ResidualStream& residual_stream, const LayerStep& step) const;
  void feed_forward(ResidualStream& residual_stream, const LayerStep& step) const;
  // Only the rows of the cache that forward() writes: neither attention nor experts.
  void append_rows(ResidualStream& residual_stream, const LayerStep& step) const;
  void finish_loading(ops::Stream& stream) { attention_->finish_loading(stream); }
  // Whether the ranks may share the rows of a step (row_shares.h): nobody reads all of them but quantised.
  bool can_share_rows() const { return quantises_rows_ && !attention_->reads_values(); }

 private:
  // What attention reads.
  NormedRows normalise_input(ResidualStream& residual_stream, const LayerStep& step) const;
  // What this lane's tokens bring to the FFN or MoE.
  void normalise_branch(ResidualStream& residual_stream, const LayerStep& step) const;
  // The experts of this lane's tokens.
  void choose_own(const RowShares& shares, const LayerStep& step) const;
  // The rows of all lanes, where they are, with the experts that their tokens go to.
  NormedRows gather_lanes(const RowShares& shares, const LayerStep& step) const;
  void choose_experts(const tensor::Tensor& x, const tensor::Tensor& kv_rows, const RoutedRows& to,
                      ops::Stream& stream) const;
  bool is_moe() const { return std::holds_alternative<Moe>(mlp_); }

  RmsNorm input_layernorm_, post_attention_layernorm_;
  std::unique_ptr<Attention> attention_;
  std::variant<DenseMlp, Moe> mlp_;
  bool quantises_rows_;  // in the normalisations, for all matrices
};

// "model.layers.3."
std::string layer_prefix(int layer_idx);

}  // namespace fathom::layers
