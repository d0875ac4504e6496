#include "layers/mtp_layer.h"

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
      block_(layer_idx, config, builder) {}

ResidualStream MtpLayer::join(const Tensor& hidden, const Tensor& embedding,
                              const LayerStep& step) const {
  ResidualStream residual_stream(step.buffers.residual, step.buffers.branch);
  if (step.batch.num_tokens() == 0) return residual_stream;
  const Tensor& input = step.buffers.mtp_input;
  const int64_t hidden_size = hidden.dim(1);
  enorm_.forward(embedding, input.slice(1, 0, hidden_size), step.stream);
  hnorm_.forward(hidden, input.slice(1, hidden_size, 2 * hidden_size), step.stream);
  ops::linear({.x = input, .weight = eh_proj_, .out = residual_stream.residual()}, step.stream);
  return residual_stream;
}

void MtpLayer::append_rows(const Tensor& hidden, const Tensor& embedding,
                           const LayerStep& step) const {
  ResidualStream residual_stream = join(hidden, embedding, step);
  block_.append_rows(residual_stream, step);
}

void MtpLayer::forward(const Tensor& hidden, const Tensor& embedding, const LayerStep& step,
                       const Tensor& out) const {
  ResidualStream residual_stream = join(hidden, embedding, step);
  block_.forward(residual_stream, step);
  if (step.batch.num_tokens() > 0)
    residual_stream.normalise(norm_, {.values = out, .quantised = {}}, step.stream);
}

}  // namespace fathom::layers
