#pragma once
// Network: the layers of a model and the weights outside of them, in the order of the checkpoint.
// Built twice from the same code: against a measuring arena for the size, then against the real
// memory.
//
//   Network network(config, with_mtp, builder);
//
// Views of weights that the model owns. Immutable after finish_loading(), thread-safe.

#include <optional>
#include <vector>

#include "config/model_config.h"
#include "config/rope.h"
#include "layers/decoder_layer.h"
#include "layers/mtp_layer.h"
#include "layers/rms_norm.h"
#include "layers/weight_builder.h"

namespace fathom::model {

struct Network {
  Network(const config::ModelConfig& config, bool with_mtp, layers::WeightBuilder& builder);

  // Derives weights from loaded parameters. Waits for the stream.
  void finish_loading(ops::Stream& stream);

  config::RopeParams rope;
  tensor::Tensor inv_freq;      // f32[qk_rope_head_dim / 2]
  tensor::Tensor embed_tokens;  // [vocab_size, hidden_size]  the rank's rows, as lm_head's
  std::vector<layers::DecoderLayer> layers;
  layers::RmsNorm norm;
  tensor::Tensor lm_head;  // [vocab_size, hidden_size]; embed_tokens when tied
  std::optional<layers::MtpLayer> mtp;
  ops::Weight draft_head;  // lm_head, or its copy in FP8
};

}  // namespace fathom::model
