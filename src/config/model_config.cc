#include "config/model_config.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "config/config_file.h"
#include "config/index_section.h"
#include "config/json_reader.h"
#include "config/parse_sections.h"
#include "config/quantization_section.h"

namespace fathom::config {
namespace {

// Keys that describe training, saving or other programs: they don't change what is computed.
constexpr std::string_view kHarmlessKeys[] = {"_attn_implementation",
                                              "_moe_implementation",
                                              "_name_or_path",
                                              "add_cross_attention",
                                              "attention_dropout",
                                              "auto_map",
                                              "aux_loss_alpha",
                                              "bad_words_ids",
                                              "begin_suppress_tokens",
                                              "chunk_size_feed_forward",
                                              "cross_attention_hidden_size",
                                              "decoder_start_token_id",
                                              "ep_size",
                                              "finetuning_task",
                                              "forced_bos_token_id",
                                              "forced_eos_token_id",
                                              "id2label",
                                              "initializer_range",
                                              "is_decoder",
                                              "is_encoder_decoder",
                                              "keys_to_ignore_at_inference",
                                              "label2id",
                                              "output_attentions",
                                              "output_hidden_states",
                                              "output_router_logits",
                                              "output_scores",
                                              "pad_token_id",
                                              "prefix",
                                              "pretraining_tp",
                                              "problem_type",
                                              "pruned_heads",
                                              "return_dict",
                                              "return_dict_in_generate",
                                              "router_aux_loss_coef",
                                              "sep_token_id",
                                              "seq_aux",
                                              "suppress_tokens",
                                              "task_specific_params",
                                              "tf_legacy_loss",
                                              "tie_encoder_decoder",
                                              "tokenizer_class",
                                              "torchscript",
                                              "transformers_version",
                                              "unk_token_id",
                                              "unsloth_fixed",
                                              "unsloth_version",
                                              "use_bfloat16",
                                              "use_cache"};

// Keys of mechanisms that related models have and this program does not compute.
constexpr std::string_view kUnsupportedKeys[] = {"attn_logit_softcapping",
                                                 "compress_ratios",
                                                 "final_logit_softcapping",
                                                 "layer_types",
                                                 "mlp_bias",
                                                 "partial_rotary_factor",
                                                 "qk_layernorm",
                                                 "sliding_window",
                                                 "text_config",
                                                 "vision_config"};

bool all_are(const json::Value& list, std::string_view text) {
  return list.is_array() && std::all_of(list.begin(), list.end(), [&](const json::Value& item) {
           return json::is_text(item, text);
         });
}

// Values with which the mechanism is off: newer libraries write them for every model.
bool is_off(std::string_view key, const json::Value& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (key == "layer_types") return all_are(value, "full_attention");
  return key == "partial_rotary_factor" && value == 1.0;
}

void refuse_unsupported(JsonReader& reader, Architecture architecture) {
  for (const std::string_view key : kUnsupportedKeys) {
    const json::Value* value = reader.find(key);
    if (value == nullptr || is_off(key, *value)) continue;
    // The kind of every layer, which read_index checks.
    if (key == "layer_types" && architecture == Architecture::kDeepseekV32) continue;
    reader.require(false, key, "absent: this is not supported");
  }
  reader.require(!reader.boolean("attention_bias", false), "attention_bias",
                 "false: biases are not supported");
  reader.require(!reader.boolean("tie_word_embeddings", false), "tie_word_embeddings",
                 "false: shared embeddings are not supported");
  reader.require(reader.boolean("rope_interleave", true), "rope_interleave",
                 "true: only interleaved rotary pairs are supported");
  reader.require(reader.boolean("use_mla", true), "use_mla",
                 "true: only latent attention is supported");
  reader.choice("hidden_act", {"silu"}, -1);
  reader.integer("moe_layer_freq", {.min = 1, .max = 1, .fallback = 1});
}

void read_token_ids(JsonReader& reader, std::string_view key, int vocab_size,
                    std::vector<int32_t>& ids) {
  const json::Value* value = reader.find(key);
  if (value == nullptr) return;
  const auto add = [&](const json::Value& id) {
    const bool valid =
        id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(vocab_size);
    if (valid) {
      const auto token_id = static_cast<int32_t>(id.get<uint64_t>());
      if (std::find(ids.begin(), ids.end(), token_id) == ids.end()) ids.push_back(token_id);
    }
    return valid;
  };
  const std::string rule = "a token id below vocab_size (" + std::to_string(vocab_size) + ")";
  if (!value->is_array()) return reader.require(add(*value), key, rule);
  reader.require(!value->empty() && value->size() <= 64, key, "a list of 1 to 64 token ids");
  for (const json::Value& id : *value) {
    if (!reader.ok()) return;
    if (!add(id)) {
      reader.fail("\"" + std::string(key) + "\" holds " + json::shown(id) + ", must be " + rule);
    }
  }
}

void read_dimensions(JsonReader& reader, ModelConfig& config) {
  config.hidden_size = reader.integer("hidden_size", {.min = 1, .max = 65536});
  config.num_hidden_layers = reader.integer("num_hidden_layers", {.min = 1, .max = 1024});
  config.vocab_size = reader.integer("vocab_size", {.min = 1, .max = 1 << 20});
  config.intermediate_size = reader.integer("intermediate_size", {.min = 1, .max = 1 << 18});
  config.rms_norm_eps = reader.number("rms_norm_eps", {.min = 1e-12, .max = 0.1});
  config.max_position_embeddings =
      reader.integer64("max_position_embeddings", {.min = 1, .max = 1 << 26});
  config.num_nextn_predict_layers =
      reader.integer("num_nextn_predict_layers", {.min = 0, .max = 1, .fallback = 0});
  config.torch_dtype = reader.text("torch_dtype", reader.text("dtype", "bfloat16"));
}

void read_attention(JsonReader& reader, ModelConfig& config) {
  config.num_attention_heads = reader.integer("num_attention_heads", {.min = 1, .max = 1024});
  config.q_lora_rank = reader.optional_integer("q_lora_rank", {.min = 1, .max = 16384});
  config.kv_lora_rank = reader.integer("kv_lora_rank", {.min = 1, .max = 8192});
  config.qk_nope_head_dim = reader.integer("qk_nope_head_dim", {.min = 1, .max = 1024});
  config.qk_rope_head_dim = reader.integer("qk_rope_head_dim", {.min = 2, .max = 1024});
  config.v_head_dim = reader.integer("v_head_dim", {.min = 1, .max = 1024});
  reader.require(config.qk_rope_head_dim % 2 == 0, "qk_rope_head_dim",
                 "even: rotary pairs share a frequency");
  const int heads = config.num_attention_heads;
  reader.require(
      reader.integer64("num_key_value_heads", {.min = 1, .max = 1024, .fallback = heads}) == heads,
      "num_key_value_heads",
      "num_attention_heads (" + std::to_string(heads) + "): MLA has one latent for all heads");
  const int qk = config.qk_head_dim(), rope = config.qk_rope_head_dim;
  reader.require(reader.integer64("qk_head_dim", {.min = 1, .max = 2048, .fallback = qk}) == qk,
                 "qk_head_dim", "qk_nope_head_dim + qk_rope_head_dim (" + std::to_string(qk) + ")");
  // transformers saves the rotary part's size under this name.
  const int64_t head_dim = reader.integer64("head_dim", {.min = 1, .max = 2048, .fallback = rope});
  reader.require(head_dim == rope || head_dim == qk, "head_dim",
                 "qk_rope_head_dim (" + std::to_string(rope) + ") or qk_head_dim (" +
                     std::to_string(qk) + ")");
}

void read_special_tokens(JsonReader& reader, JsonReader* generation, ModelConfig& config) {
  config.bos_token_id =
      reader.integer("bos_token_id", {.min = 0, .max = std::max(config.vocab_size, 1) - 1});
  read_token_ids(reader, "eos_token_id", config.vocab_size, config.eos_token_ids);
  if (generation != nullptr) {
    read_token_ids(*generation, "eos_token_id", config.vocab_size, config.eos_token_ids);
  }
  reader.require(!config.eos_token_ids.empty(), "eos_token_id",
                 "a token id or a list of token ids, here or in generation_config.json");
}

Result<json::Value> parse_object(std::string_view text) {
  Result<json::Value> value = json::parse(text, {.max_depth = 16, .max_bytes = kMaxConfigBytes});
  if (value && !value->is_object()) {
    return invalid_argument("holds " + json::shown(*value) + ", must be a JSON object");
  }
  return value;
}

Error in_file(const std::string& file, const Error& error) {
  return Error{error.code, file + ": " + error.message};
}

Result<ModelConfig> parse(const json::Value& object, JsonReader* generation) {
  JsonReader reader(object);
  ModelConfig config;
  read_architecture(reader, config);
  if (reader.ok()) refuse_unsupported(reader, config.architecture);
  if (reader.ok()) read_dimensions(reader, config);
  if (reader.ok()) read_attention(reader, config);
  if (reader.ok()) read_index(reader, config);
  if (reader.ok()) read_experts(reader, config);
  if (reader.ok()) read_rope(reader, config);
  if (reader.ok()) read_quantization(reader, config);
  if (reader.ok()) read_special_tokens(reader, generation, config);
  if (!reader.ok()) return reader.error();
  config.names_code = reader.find("auto_map") != nullptr;
  for (const std::string_view key : kHarmlessKeys) reader.find(key);
  config.unused_keys = reader.unread_keys();
  return config;
}

void log_unused_keys(const ModelConfig& config) {
  if (config.unused_keys.empty()) return;
  std::string keys;
  for (size_t i = 0; i < config.unused_keys.size() && i < 20; ++i) {
    keys += (i == 0 ? "" : ",") + config.unused_keys[i];
  }
  FATHOM_LOG(kWarning, "config", "config.json has keys that this program does not know",
             {{"count", config.unused_keys.size()}, {"keys", keys}});
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view config_json,
                                       std::string_view generation_config_json) {
  const Result<json::Value> object = parse_object(config_json);
  if (!object) return in_file("config.json", object.error());
  if (generation_config_json.empty()) {
    Result<ModelConfig> config = parse(*object, nullptr);
    return config ? std::move(config) : in_file("config.json", config.error());
  }
  const Result<json::Value> generation = parse_object(generation_config_json);
  if (!generation) return in_file("generation_config.json", generation.error());
  JsonReader generation_reader(*generation);
  Result<ModelConfig> config = parse(*object, &generation_reader);
  if (!config) return in_file("config.json", config.error());
  if (!generation_reader.ok()) return in_file("generation_config.json", generation_reader.error());
  return config;
}

Result<ModelConfig> load_model_config(const std::string& model_path) {
  const std::string config_path = model_path + "/config.json";
  const Result<std::string> config_json = read_config_file(config_path);
  if (!config_json) return config_json.error();
  Result<std::string> generation_json = read_config_file(model_path + "/generation_config.json");
  if (!generation_json) {
    if (generation_json.error().code != ErrorCode::kNotFound) return generation_json.error();
    generation_json = std::string();
  }
  Result<ModelConfig> config = parse_model_config(*config_json, *generation_json);
  if (!config) {
    return Error{config.error().code, model_path + "/" + config.error().message};
  }
  if (config->names_code) {
    FATHOM_LOG(kWarning, "config", "the checkpoint names code of its own, which is never run",
               {{"file", config_path}, {"key", "auto_map"}});
  }
  log_unused_keys(*config);
  return config;
}

Result<ModelConfig> with_num_layers(ModelConfig config, int num_layers) {
  if (num_layers < 1 || num_layers > config.num_hidden_layers) {
    return invalid_argument("num_layers is " + std::to_string(num_layers) + ", must be in [1, " +
                            std::to_string(config.num_hidden_layers) + "] (num_hidden_layers)");
  }
  if (num_layers < config.num_hidden_layers) config.num_nextn_predict_layers = 0;
  config.num_hidden_layers = num_layers;
  config.first_k_dense_replace = std::min(config.first_k_dense_replace, num_layers);
  return config;
}

}  // namespace fathom::config
