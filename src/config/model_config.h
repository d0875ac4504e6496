#pragma once
// The model's dimensions: config.json, checked key by key before any weight is read. Field names
// are the keys of config.json, so one grep joins code, checkpoint and paper.
//
//   Result<ModelConfig> config = load_model_config("models/demo");
//   // error: models/demo/config.json: "num_attention_heads" is 0, must be an integer in [1, 1024]
//
// Plain data; loading is thread-safe. A key that would change the computation and is not supported
// is refused by name; a key that does not (initializer_range, use_cache...) is accepted; a key
// nobody knows is listed in unused_keys. Code that a checkpoint names (auto_map) is never run.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom::config {

enum class Architecture { kDeepseekV2, kDeepseekV3, kDeepseekV32 };
enum class ScoringFunc { kSoftmax, kSigmoid };
enum class TopkMethod { kGreedy, kGroupLimitedGreedy, kNoauxTc };

// rope_scaling of type "yarn".
struct YarnConfig {
  double factor = 1, beta_fast = 32, beta_slow = 1, mscale = 1, mscale_all_dim = 0;
  int64_t original_max_position_embeddings = 4096;

  bool operator==(const YarnConfig&) const = default;
};

// What the quantised matrices are: fp8 e4m3 or int8 with scales of 128x128 blocks, and activations quantised per token
// and 128 channels; or int8 with scales of output channels, and activations per token; or FP8 as the first, with routed
// experts of int4, which have a scale for each output and 128 channels. Activations always dynamically.
// AWQ: int4 with a scale and a zero point for each output and group_size channels; activations as they are.
enum class QuantMethod { kFp8Blocks, kInt8Blocks, kInt8Channels, kW4AFp8, kAwq };

std::string_view quant_method_name(QuantMethod method);  // for people

// quantization_config
struct QuantizationConfig {
  QuantMethod method = QuantMethod::kFp8Blocks;
  // scale_fmt "ue8m0" (V3.1): the published weight scales are powers of two. They are stored as
  // float32 and read like all others; activation scales may stay float32, which is the more exact
  // choice.
  bool scale_ue8m0 = false;
  int group_size = 0;  // AWQ: 32, 64 or 128
  // int8 and AWQ: names of modules that are not quantised, with all in them: "lm_head", "self_attn.kv_b_proj". In FP8
  // each tensor's own dtype tells.
  std::vector<std::string> unquantised_modules;
};

// The lightning indexer of DeepSeek-V3.2 (ops/index.h): index_n_heads, index_head_dim, index_topk.
struct IndexConfig {
  int n_heads = 0, head_dim = 0, topk = 0;

  bool operator==(const IndexConfig&) const = default;
};

struct ModelConfig {
  Architecture architecture = Architecture::kDeepseekV3;
  std::string architecture_name;  // architectures[0]
  std::string model_type;

  int hidden_size = 0, num_hidden_layers = 0, vocab_size = 0;
  int intermediate_size = 0;  // dense layers
  int num_attention_heads = 0;
  std::optional<int> q_lora_rank;  // none = q_proj without compression
  int kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  std::optional<IndexConfig> index_config;  // none = attention to all rows

  int n_routed_experts = 0;  // 0 = a dense model
  int n_shared_experts = 0, num_experts_per_tok = 0, moe_intermediate_size = 0;
  int first_k_dense_replace = 0, n_group = 1, topk_group = 1;
  ScoringFunc scoring_func = ScoringFunc::kSigmoid;
  TopkMethod topk_method = TopkMethod::kNoauxTc;
  bool norm_topk_prob = false;
  double routed_scaling_factor = 1.0;

  double rms_norm_eps = 1e-6, rope_theta = 10000;
  std::optional<YarnConfig> rope_scaling;
  int64_t max_position_embeddings = 4096;
  int num_nextn_predict_layers = 0;
  bool tie_word_embeddings = false;  // always false: no model of the family ties, true is refused
  std::optional<QuantizationConfig> quantization_config;
  std::string torch_dtype;

  int32_t bos_token_id = 0;
  std::vector<int32_t> eos_token_ids;  // config.json, or generation_config.json where it says more

  bool names_code = false;               // auto_map: Python of the checkpoint, never run here
  std::vector<std::string> unused_keys;  // of config.json, that nothing here knows

  // Derived.
  // DeepSeek-V3's gate of experts, which later architectures keep.
  bool has_v3_gate() const { return architecture != Architecture::kDeepseekV2; }
  int qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  int kv_dim() const { return kv_lora_rank + qk_rope_head_dim; }
  bool is_moe_layer(int layer_idx) const {
    return n_routed_experts > 0 && layer_idx >= first_k_dense_replace;
  }
};

// Reads DIR/config.json and, if there, DIR/generation_config.json.
Result<ModelConfig> load_model_config(const std::string& model_path);
// The same from texts, for tests and fuzzing. An empty generation_config means that there is none.
Result<ModelConfig> parse_model_config(std::string_view config_json,
                                       std::string_view generation_config_json);

// The model cut to its first layers, for benches (--num-layers): 1 <= num_layers <=
// num_hidden_layers. A model that loses layers loses its MTP layer too, which is trained on the
// last one.
Result<ModelConfig> with_num_layers(ModelConfig config, int num_layers);

}  // namespace fathom::config
