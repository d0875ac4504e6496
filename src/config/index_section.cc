#include "config/index_section.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/json.h"

namespace fathom::config {
namespace {

// A false value is off.
void refuse(JsonReader& reader, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const json::Value* value = reader.find(key);
    const bool is_off = value == nullptr || (value->is_boolean() && !value->get<bool>());
    reader.require(is_off, key, "absent: this is not supported");
  }
}

// What transformers writes for every layer of such a model.
void require_indexed_layers(JsonReader& reader, const ModelConfig& config) {
  const json::Value* layers = reader.find("layer_types");
  if (layers == nullptr) return;
  const bool same =
      layers->is_array() && std::cmp_equal(layers->size(), config.num_hidden_layers) &&
      std::all_of(layers->begin(), layers->end(),
                  [](const json::Value& item) { return json::is_text(item, "indexed_attention"); });
  reader.require(same, "layer_types",
                 "\"indexed_attention\" for each of num_hidden_layers (" +
                     std::to_string(config.num_hidden_layers) + ")");
}

}  // namespace

void read_index(JsonReader& reader, ModelConfig& config) {
  // GLM-5's: selections that layers share, and other pairs of the rotary embedding.
  refuse(reader, {"index_share_for_mtp_iteration", "index_topk_freq", "index_topk_pattern",
                  "indexer_rope_interleave"});
  if (config.architecture != Architecture::kDeepseekV32)
    return refuse(reader, {"index_head_dim", "index_n_heads", "index_topk"});
  IndexConfig index;
  index.n_heads = reader.integer("index_n_heads", {.min = 1, .max = 1024});
  index.head_dim = reader.integer("index_head_dim", {.min = 2, .max = 1024});
  index.topk = reader.integer("index_topk", {.min = 1, .max = 1 << 20});
  reader.require(std::has_single_bit(static_cast<unsigned>(index.head_dim)), "index_head_dim",
                 "a power of two: keys go through a Hadamard transform");
  reader.require(index.head_dim >= config.qk_rope_head_dim, "index_head_dim",
                 "at least qk_rope_head_dim (" + std::to_string(config.qk_rope_head_dim) + ")");
  reader.require(config.q_lora_rank.has_value(), "q_lora_rank",
                 "an integer: the indexer reads the compressed queries");
  require_indexed_layers(reader, config);
  config.index_config = index;
}

}  // namespace fathom::config
