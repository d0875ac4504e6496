#include "layers/mtp_layer.h"

#include "layers/fp8_copy.h"
#include "ops/gather_rows.h"
#include "ops/linear.h"

namespace fathom::layers {

using tensor::Tensor;

MtpLayer::MtpLayer(int layer_idx, const config::ModelConfig& config, WeightBuilder& builder)
    : enorm_(make_rms_norm(layer_prefix(layer_idx) + "enorm.weight", config.hidden_size, config,
                           builder)),
      hnorm_(make_rms_norm(layer_prefix(layer_idx) + "hnorm.weight", config.hidden_size, config,
                           builder)),
      norm_(make_rms_norm(layer_prefix(layer_idx) + "shared_head.norm.weight", config.hidden_size,
                          config, builder)),
      eh_proj_{.data = builder.plain_matrix(layer_prefix(layer_idx) + "eh_proj.weight",
                                            config.hidden_size, int64_t{2} * config.hidden_size),
               .scale = {}},
      block_(layer_idx, config, builder) {
  if (builder.types().fp8_drafts) fp8_eh_proj_ = allocate_fp8_copy(eh_proj_.data, builder);
}

void MtpLayer::finish_loading(ops::Stream& stream) {
  block_.finish_loading(stream);
  if (!fp8_eh_proj_.data.is_null()) fill_fp8_copy(eh_proj_.data, fp8_eh_proj_, stream);
}

void MtpLayer::join(const Tensor& hidden, const Tensor& embedding, const LayerStep& step) const {
  if (step.batch.num_tokens() == 0) return;
  const Tensor& input = step.buffers.mtp_input;
  const int64_t hidden_size = hidden.dim(1);
  enorm_.forward(embedding, input.slice(1, 0, hidden_size), step.stream);
  hnorm_.forward(hidden, input.slice(1, hidden_size, 2 * hidden_size), step.stream);
  ops::linear({.x = input, .weight = joining(), .out = step.buffers.residual}, step.stream);
}

void MtpLayer::append_rows(const Tensor& hidden, const Tensor& embedding,
                           const LayerStep& step) const {
  join(hidden, embedding, step);
  ResidualStream residual_stream(step.buffers.residual, step.buffers.branch);
  block_.append_rows(residual_stream, step);
}

void MtpLayer::forward(const Tensor& hidden, const Tensor& embedding, const LayerStep& step,
                       const Tensor& out) const {
  join(hidden, embedding, step);
  ResidualStream residual_stream(step.buffers.residual, step.buffers.branch);
  block_.forward(residual_stream, step);
  if (step.batch.num_tokens() > 0)
    residual_stream.normalise(norm_, {.values = out, .quantised = {}}, step.stream);
}

void MtpLayer::forward_kept(const Tensor& hidden, const Tensor& embedding, const LayerStep& step,
                            const LayerStep& kept) const {
  join(hidden, embedding, step);
  // Once they are joined nobody reads the input: its memory has room for two rows of each token.
  const int64_t tokens = step.batch.num_tokens(), num_kept = kept.batch.num_tokens();
  const Tensor free = step.buffers.mtp_input.reshape({2 * tokens, hidden.dim(1)});
  ResidualStream kept_stream(free.slice(0, tokens, tokens + num_kept), kept.buffers.branch);
  if (tokens > 0) {
    ResidualStream all(step.buffers.residual, free.slice(0, 0, tokens));
    block_.attend(all, step);
    const Tensor& rows = step.batch.kept.rows;
    ops::gather_rows({.x = all.residual(), .rows = rows, .out = kept_stream.residual()},
                     step.stream);
    ops::gather_rows({.x = all.branch(), .rows = rows, .out = kept_stream.branch()}, step.stream);
    kept_stream.set_pending(*step.rank.tp);
  }
  block_.feed_forward(kept_stream, kept);
  if (num_kept > 0)
    kept_stream.normalise(norm_, {.values = step.batch.kept.out, .quantised = {}}, step.stream);
}

}  // namespace fathom::layers
