#include "config/draft_config.h"

#include <algorithm>

#include "base/json.h"
#include "config/config_file.h"
#include "config/json_reader.h"

namespace fathom::config {
namespace {

// Names that draft checkpoints carry besides that of their model.
constexpr std::string_view kDraftArchitectures[] = {"DeepseekV3ForCausalLMNextN",
                                                    "DeepSeekMTPModel"};

json::Value index_settings(const std::optional<IndexConfig>& index) {
  if (!index) return nullptr;
  return {{"n_heads", index->n_heads}, {"head_dim", index->head_dim}, {"topk", index->topk}};
}

json::Value yarn_settings(const std::optional<YarnConfig>& yarn) {
  if (!yarn) return nullptr;
  return {{"factor", yarn->factor},
          {"beta_fast", yarn->beta_fast},
          {"beta_slow", yarn->beta_slow},
          {"mscale", yarn->mscale},
          {"mscale_all_dim", yarn->mscale_all_dim},
          {"original_max_position_embeddings", yarn->original_max_position_embeddings}};
}

// Everything that changes what a decoder layer computes, by its key in config.json.
json::Value layer_settings(const ModelConfig& config) {
  return {{"hidden_size", config.hidden_size},
          {"vocab_size", config.vocab_size},
          {"intermediate_size", config.intermediate_size},
          {"num_attention_heads", config.num_attention_heads},
          {"q_lora_rank", config.q_lora_rank ? json::Value(*config.q_lora_rank) : nullptr},
          {"kv_lora_rank", config.kv_lora_rank},
          {"qk_nope_head_dim", config.qk_nope_head_dim},
          {"qk_rope_head_dim", config.qk_rope_head_dim},
          {"v_head_dim", config.v_head_dim},
          {"index", index_settings(config.index_config)},
          {"n_routed_experts", config.n_routed_experts},
          {"n_shared_experts", config.n_shared_experts},
          {"num_experts_per_tok", config.num_experts_per_tok},
          {"moe_intermediate_size", config.moe_intermediate_size},
          {"n_group", config.n_group},
          {"topk_group", config.topk_group},
          {"scoring_func", static_cast<int>(config.scoring_func)},
          {"topk_method", static_cast<int>(config.topk_method)},
          {"norm_topk_prob", config.norm_topk_prob},
          {"routed_scaling_factor", config.routed_scaling_factor},
          {"rms_norm_eps", config.rms_norm_eps},
          {"rope_theta", config.rope_theta},
          {"rope_scaling", yarn_settings(config.rope_scaling)}};
}

Status check_settings(const ModelConfig& draft, const ModelConfig& model) {
  const json::Value ours = layer_settings(draft), theirs = layer_settings(model);
  for (const auto& [key, value] : ours.items()) {
    if (value == theirs[key]) continue;
    return invalid_argument("config.json: \"" + key + "\" is " + json::shown(value) +
                            ", the model's is " + json::shown(theirs[key]) +
                            ": the draft layer was not made for this model");
  }
  return {};
}

bool is_draft_architecture(const json::Value& names, const ModelConfig& model) {
  if (!names.is_array() || names.size() != 1 || !names[0].is_string()) return false;
  const auto name = names[0].get<std::string>();
  return name == model.architecture_name ||
         std::find(std::begin(kDraftArchitectures), std::end(kDraftArchitectures), name) !=
             std::end(kDraftArchitectures);
}

}  // namespace

Result<DraftConfig> parse_draft_config(std::string_view config_json, const ModelConfig& model) {
  Result<json::Value> object =
      json::parse(config_json, {.max_depth = 16, .max_bytes = kMaxConfigBytes});
  if (!object) return Error{object.error().code, "config.json: " + object.error().message};
  if (!object->is_object()) return invalid_argument("config.json: must be a JSON object");
  JsonReader reader(*object);
  const int num_layers = reader.integer("num_hidden_layers", {.min = 1, .max = 1024});
  reader.require(
      reader.integer("num_nextn_predict_layers", {.min = 0, .max = 1, .fallback = 0}) == 1,
      "num_nextn_predict_layers", "1: this is to be a checkpoint of a draft layer");
  reader.require(is_draft_architecture(object->value("architectures", json::Value()), model),
                 "architectures",
                 "[\"" + std::string(kDraftArchitectures[0]) + "\"] or the model's, " +
                     model.architecture_name);
  if (!reader.ok()) return invalid_argument("config.json: " + reader.error().message);
  // The layer counts of a whole model are kept or not, and mean nothing for one layer.
  (*object)["architectures"] = json::Value::array({model.architecture_name});
  (*object)["num_hidden_layers"] = model.num_hidden_layers;
  (*object)["first_k_dense_replace"] = model.first_k_dense_replace;
  const Result<ModelConfig> draft = parse_model_config(json::dump(*object), "");
  if (!draft) return draft.error();
  if (Status same = check_settings(*draft, model); !same) return same.error();
  return DraftConfig{.layer_idx = num_layers == 1 ? 0 : num_layers};
}

Result<DraftConfig> load_draft_config(const std::string& directory, const ModelConfig& model) {
  const Result<std::string> text = read_config_file(directory + "/config.json");
  if (!text) return text.error();
  Result<DraftConfig> draft = parse_draft_config(*text, model);
  if (!draft) return Error{draft.error().code, directory + "/" + draft.error().message};
  return draft;
}

}  // namespace fathom::config
