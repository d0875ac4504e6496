#include "apps/bench/decode_floor.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace fathom::apps {
namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

int64_t stored_bytes(const weights::Parameter& parameter) {
  return parameter.data.num_bytes() + (parameter.scale.is_null() ? 0 : parameter.scale.num_bytes());
}

}  // namespace

double expected_experts(int experts, int chosen, int tokens) {
  if (experts == 0) return 0;
  const double missed = 1.0 - static_cast<double>(chosen) / experts;
  return experts * (1.0 - std::pow(missed, tokens));
}

DecodeBytes decode_bytes(const model::Model& model, int batch_size, int64_t context_tokens) {
  const config::ModelConfig& config = model.config();
  const double expert_share =
      config.n_routed_experts == 0
          ? 0
          : expected_experts(config.n_routed_experts, config.num_experts_per_tok, batch_size) /
                config.n_routed_experts;
  const std::string mtp_prefix = "model.layers." + std::to_string(config.num_hidden_layers) + ".";
  double expert_bytes = 0;
  int64_t other_bytes = 0;
  for (const weights::Parameter& parameter : model.parameters()) {
    // The draft layer does not run in a plain decode step.
    if (parameter.name.starts_with(mtp_prefix)) continue;
    if (contains(parameter.name, ".mlp.experts.")) {
      expert_bytes += expert_share * static_cast<double>(stored_bytes(parameter));
    } else if (contains(parameter.name, "embed_tokens")) {
      // One row per sequence; but a tied head reads all of it.
      other_bytes += config.tie_word_embeddings
                         ? stored_bytes(parameter)
                         : batch_size * stored_bytes(parameter) / config.vocab_size;
    } else {
      // kv_b_proj stands for the absorbed W_UK and W_UV, which have as many bytes.
      other_bytes += stored_bytes(parameter);
    }
  }
  // The draft layer has rows too, which a plain decode step does not read.
  const layers::CacheFormat format = model.kv_groups()[0].format;
  int64_t bytes = context_tokens * format.latent.row_bytes;
  // An indexer reads its keys of all tokens, attention the rows of those that it keeps.
  if (format.index)
    bytes = context_tokens * format.index->row_bytes() +
            std::min<int64_t>(context_tokens, config.index_config->topk) * format.latent.row_bytes;
  return {.weight_bytes = other_bytes + static_cast<int64_t>(expert_bytes),
          .cache_bytes = int64_t{batch_size} * config.num_hidden_layers * bytes};
}

}  // namespace fathom::apps
