#include "model/network.h"

#include "layers/fp8_copy.h"

namespace fathom::model {

Network::Network(const config::ModelConfig& config, bool with_mtp, layers::WeightBuilder& builder)
    : rope(config::make_rope_params(config)),
      inv_freq(builder.derived(tensor::DType::kF32, {config.qk_rope_head_dim / 2})),
      embed_tokens(builder.plain_matrix("model.embed_tokens.weight", config.vocab_size,
                                        config.hidden_size, builder.tp_rows())) {
  for (int layer_idx = 0; layer_idx < config.num_hidden_layers; ++layer_idx) {
    layers.emplace_back(layer_idx, config, builder);
  }
  norm = layers::make_rms_norm("model.norm.weight", config.hidden_size, config, builder);
  lm_head = config.tie_word_embeddings
                ? embed_tokens
                : builder.plain_matrix("lm_head.weight", config.vocab_size, config.hidden_size,
                                       builder.tp_rows());
  if (with_mtp) mtp.emplace(config.num_hidden_layers, config, builder);
  draft_head = with_mtp && builder.types().fp8_drafts ? layers::allocate_fp8_copy(lm_head, builder)
                                                      : ops::Weight{.data = lm_head, .scale = {}};
}

void Network::finish_loading(ops::Stream& stream) {
  stream.backend().copy_to_device(inv_freq.data(), rope.inv_freq.data(), inv_freq.num_bytes(),
                                  stream);
  stream.synchronize();
  for (layers::DecoderLayer& layer : layers) layer.finish_loading(stream);
  if (mtp) mtp->finish_loading(stream);
  if (!draft_head.scale.is_null()) layers::fill_fp8_copy(lm_head, draft_head, stream);
}

}  // namespace fathom::model
