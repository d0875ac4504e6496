#pragma once
// MtpLayer: the draft layer of DeepSeek-V3 (report, section 2.2; NextN). From the model's hidden
// state of a position and the token after it, a usual decoder layer drafts the token after that:
//   x = eh_proj(enorm(embed(next token)) ++ hnorm(hidden));  out = norm(block(x))
// Embedding and output head are the model's own.
//
// Immutable after finish_loading(), thread-safe.

#include "config/model_config.h"
#include "layers/decoder_layer.h"

namespace fathom::layers {

class MtpLayer {
 public:
  // layer_idx: num_hidden_layers.
  MtpLayer(int layer_idx, const config::ModelConfig& config, WeightBuilder& builder);

  // hidden     act[tokens, hidden_size]
  // embedding  act[tokens, hidden_size]   of the next tokens; overwritten
  // out        act[tokens, hidden_size]   may be hidden
  void forward(const tensor::Tensor& hidden, const tensor::Tensor& embedding, const LayerStep& step,
               const tensor::Tensor& out) const;
  // The same of the tokens that the batch keeps alone, into their place; the rows of the cache are those of all.
  // kept: the step behind attention, of which they are all tokens.
  void forward_kept(const tensor::Tensor& hidden, const tensor::Tensor& embedding,
                    const LayerStep& step, const LayerStep& kept) const;
  // Only the rows of the cache that forward() writes, for steps after which nobody drafts.
  void append_rows(const tensor::Tensor& hidden, const tensor::Tensor& embedding,
                   const LayerStep& step) const;
  void finish_loading(ops::Stream& stream);

 private:
  // Into the residual stream, whose beginning they are.
  void join(const tensor::Tensor& hidden, const tensor::Tensor& embedding,
            const LayerStep& step) const;

  RmsNorm enorm_, hnorm_, norm_;
  const ops::Weight& joining() const {
    return fp8_eh_proj_.data.is_null() ? eh_proj_ : fp8_eh_proj_;
  }

  ops::Weight eh_proj_;  // [hidden_size, 2 * hidden_size], never FP8
  ops::Weight
      fp8_eh_proj_;  // its copy, which is multiplied with instead where drafts are to be FP8
  DecoderLayer block_;
};

}  // namespace fathom::layers
