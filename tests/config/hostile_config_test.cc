// Configurations that must be refused, each with one line that names the key, the value and the rule; and
// thousands of damaged ones that must not crash.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "config/rope.h"
#include "tests/config/edited_config.h"
#include "tests/cpu_time.h"

namespace fathom::config {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Refused {
  const char *base, *key, *value;
  const char* message;  // part of it
};

const std::vector<Refused>& refused_edits() {
  static const std::vector<Refused> cases = {
      // Architecture.
      {"deepseek-v3", "architectures", "",
       "\"architectures\" is missing, must be a list of one name"},
      {"deepseek-v3", "architectures", "[]", "\"architectures\" is []"},
      {"deepseek-v3", "architectures", "\"DeepseekV3ForCausalLM\"", "must be a list of one name"},
      {"deepseek-v3", "architectures", "[3]", "must be a list of one name"},
      {"deepseek-v3", "architectures", "[[\"DeepseekV3ForCausalLM\"]]",
       "must be a list of one name"},
      {"deepseek-v3", "architectures", "[\"DeepseekV2ForCausalLM\", \"DeepseekV3ForCausalLM\"]",
       "must be a list of one name"},
      {"deepseek-v3", "architectures", "[\"LlamaForCausalLM\"]",
       "\"architectures\" is [\"LlamaForCausalLM\"], which is not supported; supported: "
       "DeepseekV2ForCausalLM, DeepseekV3ForCausalLM"},
      {"deepseek-v3", "architectures", "[\"DeepseekV32ForCausalLM\"]",
       "\"model_type\" is \"deepseek_v3\", must be \"deepseek_v32\" for DeepseekV32ForCausalLM"},
      {"deepseek-v3", "architectures", "[\"DeepseekV4ForCausalLM\"]", "which is not supported"},
      {"deepseek-v3", "architectures", "[\"\"]", "which is not supported"},
      {"deepseek-v3", "model_type", "\"deepseek_v2\"",
       "\"model_type\" is \"deepseek_v2\", must be \"deepseek_v3\" or \"kimi_k2\""},
      {"deepseek-v3", "model_type", "\"deepseek_v32\"", "\"model_type\" is \"deepseek_v32\""},
      {"deepseek-v3", "model_type", "7", "\"model_type\" is 7, must be a string"},
      {"deepseek-v2", "model_type", "\"kimi_k2\"", "must be \"deepseek_v2\""},
      // Dimensions.
      {"deepseek-v3", "hidden_size", "",
       "\"hidden_size\" is missing, must be an integer in [1, 65536]"},
      {"deepseek-v3", "hidden_size", "null", "\"hidden_size\" is null"},
      {"deepseek-v3", "hidden_size", "0", "\"hidden_size\" is 0, must be an integer in [1, 65536]"},
      {"deepseek-v3", "hidden_size", "-1", "\"hidden_size\" is -1"},
      {"deepseek-v3", "hidden_size", "65537", "\"hidden_size\" is 65537"},
      {"deepseek-v3", "hidden_size", "4294967296", "\"hidden_size\" is 4294967296"},
      {"deepseek-v3", "hidden_size", "18446744073709551615",
       "\"hidden_size\" is 18446744073709551615"},
      {"deepseek-v3", "hidden_size", "-9223372036854775808",
       "\"hidden_size\" is -9223372036854775808"},
      {"deepseek-v3", "hidden_size", "7168.0", "\"hidden_size\" is 7168.0"},
      {"deepseek-v3", "hidden_size", "1e300", "\"hidden_size\" is 1e+300"},
      {"deepseek-v3", "hidden_size", "\"7168\"", "\"hidden_size\" is \"7168\""},
      {"deepseek-v3", "hidden_size", "true", "\"hidden_size\" is true"},
      {"deepseek-v3", "hidden_size", "[7168]", "\"hidden_size\" is [7168]"},
      {"deepseek-v3", "hidden_size", "{}", "\"hidden_size\" is {}"},
      {"deepseek-v3", "num_hidden_layers", "0", "\"num_hidden_layers\" is 0"},
      {"deepseek-v3", "num_hidden_layers", "1000000000", "\"num_hidden_layers\" is 1000000000"},
      {"deepseek-v3", "vocab_size", "0", "\"vocab_size\" is 0"},
      {"deepseek-v3", "vocab_size", "2147483648", "\"vocab_size\" is 2147483648"},
      {"deepseek-v3", "intermediate_size", "0", "\"intermediate_size\" is 0"},
      {"deepseek-v3", "intermediate_size", "", "\"intermediate_size\" is missing"},
      {"deepseek-v3", "max_position_embeddings", "0", "\"max_position_embeddings\" is 0"},
      {"deepseek-v3", "max_position_embeddings", "9223372036854775807",
       "\"max_position_embeddings\""},
      {"deepseek-v3", "rms_norm_eps", "0",
       "\"rms_norm_eps\" is 0, must be a number in [1e-12, 0.1]"},
      {"deepseek-v3", "rms_norm_eps", "-1e-6", "\"rms_norm_eps\" is -1e-06"},
      {"deepseek-v3", "rms_norm_eps", "\"1e-6\"", "\"rms_norm_eps\" is \"1e-6\""},
      {"deepseek-v3", "rms_norm_eps", "1", "\"rms_norm_eps\" is 1"},
      {"deepseek-v3", "num_nextn_predict_layers", "2", "\"num_nextn_predict_layers\" is 2"},
      {"deepseek-v3", "num_nextn_predict_layers", "-1", "\"num_nextn_predict_layers\" is -1"},
      {"deepseek-v3", "torch_dtype", "16", "\"torch_dtype\" is 16, must be a string"},
      // Attention.
      {"deepseek-v3", "num_attention_heads", "0", "\"num_attention_heads\" is 0"},
      {"deepseek-v3", "num_attention_heads", "127",
       "\"num_key_value_heads\" is 128, must be num_att"},
      {"deepseek-v3", "num_key_value_heads", "1", "must be num_attention_heads (128): MLA has one"},
      {"deepseek-v3", "num_key_value_heads", "0", "\"num_key_value_heads\" is 0"},
      {"deepseek-v3", "q_lora_rank", "0", "\"q_lora_rank\" is 0"},
      {"deepseek-v3", "q_lora_rank", "\"none\"", "\"q_lora_rank\" is \"none\""},
      {"deepseek-v3", "kv_lora_rank", "", "\"kv_lora_rank\" is missing"},
      {"deepseek-v3", "kv_lora_rank", "-512", "\"kv_lora_rank\" is -512"},
      {"deepseek-v3", "qk_nope_head_dim", "0", "\"qk_nope_head_dim\" is 0"},
      {"deepseek-v3", "qk_rope_head_dim", "63", "\"qk_rope_head_dim\" is 63, must be even"},
      {"deepseek-v3", "qk_rope_head_dim", "0", "\"qk_rope_head_dim\" is 0"},
      {"deepseek-v3", "v_head_dim", "1e2", "\"v_head_dim\" is 100.0"},
      {"deepseek-v3", "head_dim", "128", "\"head_dim\" is 128, must be qk_rope_head_dim (64) or"},
      {"deepseek-v3", "qk_head_dim", "256", "\"qk_head_dim\" is 256, must be qk_nope_head_dim"},
      // Experts.
      {"deepseek-v3", "n_routed_experts", "-1", "\"n_routed_experts\" is -1"},
      {"deepseek-v3", "n_routed_experts", "4097", "\"n_routed_experts\" is 4097"},
      {"deepseek-v3", "n_routed_experts", "255", "\"n_group\" is 8, must be a divisor of n_routed"},
      {"deepseek-v3", "n_routed_experts", "8", "noaux_tc scores a group by its two best experts"},
      {"deepseek-v3", "num_experts_per_tok", "", "\"num_experts_per_tok\" is missing"},
      {"deepseek-v3", "num_experts_per_tok", "0", "\"num_experts_per_tok\" is 0"},
      {"deepseek-v3", "num_experts_per_tok", "257", "\"num_experts_per_tok\" is 257"},
      {"deepseek-v3", "num_experts_per_tok", "129", "experts of topk_group groups (128)"},
      {"moonlight-16b-a3b", "num_experts_per_tok", "65", "at most n_routed_experts (64)"},
      {"deepseek-v3", "moe_intermediate_size", "", "\"moe_intermediate_size\" is missing"},
      {"deepseek-v3", "moe_intermediate_size", "0", "\"moe_intermediate_size\" is 0"},
      {"deepseek-v3", "n_shared_experts", "-1", "\"n_shared_experts\" is -1"},
      {"deepseek-v3", "n_shared_experts", "65", "\"n_shared_experts\" is 65"},
      {"deepseek-v3", "first_k_dense_replace", "62", "\"first_k_dense_replace\" is 62"},
      {"deepseek-v3", "first_k_dense_replace", "-1", "\"first_k_dense_replace\" is -1"},
      {"deepseek-v3", "n_group", "0", "\"n_group\" is 0"},
      {"deepseek-v3", "n_group", "7", "\"n_group\" is 7, must be a divisor"},
      {"deepseek-v3", "n_group", "256", "noaux_tc scores a group by its two best experts"},
      {"deepseek-v3", "topk_group", "9", "\"topk_group\" is 9, must be at most n_group (8)"},
      {"deepseek-v3", "topk_group", "0", "\"topk_group\" is 0"},
      {"deepseek-v3", "moe_layer_freq", "2", "\"moe_layer_freq\" is 2, must be 1"},
      {"deepseek-v3", "moe_layer_freq", "[0, 1]", "\"moe_layer_freq\" is [0,1], must be 1"},
      {"deepseek-v3", "norm_topk_prob", "1", "\"norm_topk_prob\" is 1, must be true or false"},
      {"deepseek-v3", "routed_scaling_factor", "0", "\"routed_scaling_factor\" is 0"},
      {"deepseek-v3", "routed_scaling_factor", "-2.5", "\"routed_scaling_factor\" is -2.5"},
      {"deepseek-v3", "routed_scaling_factor", "1e308", "\"routed_scaling_factor\" is 1e+308"},
      // Gates.
      {"deepseek-v3", "scoring_func", "\"softmax\"",
       "\"scoring_func\" is \"softmax\", must be \"sigm"},
      {"deepseek-v3", "scoring_func", "\"relu\"", "must be \"softmax\" or \"sigmoid\""},
      {"deepseek-v3", "scoring_func", "1", "\"scoring_func\" is 1"},
      {"deepseek-v3", "topk_method", "\"greedy\"",
       "\"topk_method\" is \"greedy\", must be \"noaux_tc\""},
      {"deepseek-v3", "topk_method", "\"gready\"", "\"topk_method\" is \"gready\""},
      {"deepseek-v2", "topk_method", "\"noaux_tc\"",
       "must be \"greedy\" or \"group_limited_greedy\" for"},
      {"deepseek-v2", "scoring_func", "\"sigmoid\"",
       "must be \"softmax\" for DeepseekV2ForCausalLM"},
      {"deepseek-v2", "topk_group", "", "\"topk_group\" is missing"},
      // Rotary embedding.
      {"deepseek-v3", "rope_theta", "0", "\"rope_theta\" is 0"},
      {"deepseek-v3", "rope_theta", "1", "\"rope_theta\" is 1"},
      {"deepseek-v3", "rope_theta", "\"10000\"", "\"rope_theta\" is \"10000\""},
      {"deepseek-v3", "rope_interleave", "false", "\"rope_interleave\" is false, must be true"},
      {"deepseek-v3", "rope_scaling", "40", "\"rope_scaling\" is 40, must be an object or null"},
      {"deepseek-v3", "rope_scaling", "{}", "only \"yarn\" is supported"},
      {"deepseek-v3", "rope_scaling.type", "\"linear\"",
       "\"rope_scaling.type\" is \"linear\", must be"},
      {"deepseek-v3", "rope_scaling.type", "\"deepseek_yarn\"", "\"rope_scaling.type\""},
      {"deepseek-v3", "rope_scaling.rope_type", "\"llama3\"", "\"rope_scaling.rope_type\""},
      {"deepseek-v3", "rope_scaling.factor", "", "\"rope_scaling.factor\" is missing"},
      {"deepseek-v3", "rope_scaling.factor", "0", "\"rope_scaling.factor\" is 0"},
      {"deepseek-v3", "rope_scaling.factor", "0.5", "\"rope_scaling.factor\" is 0.5"},
      {"deepseek-v3", "rope_scaling.factor", "\"40\"", "\"rope_scaling.factor\" is \"40\""},
      {"deepseek-v3", "rope_scaling.beta_fast", "0", "\"rope_scaling.beta_fast\" is 0"},
      {"deepseek-v3", "rope_scaling.beta_slow", "33",
       "\"rope_scaling.beta_slow\" is 33, must be at most"},
      {"deepseek-v3", "rope_scaling.mscale", "-1", "\"rope_scaling.mscale\" is -1"},
      {"deepseek-v3", "rope_scaling.mscale_all_dim", "[]", "\"rope_scaling.mscale_all_dim\" is []"},
      {"deepseek-v3", "rope_scaling.original_max_position_embeddings", "",
       "\"rope_scaling.original_max_position_embeddings\" is missing"},
      {"deepseek-v3", "rope_scaling.original_max_position_embeddings", "0",
       "is 0, must be an integer"},
      {"deepseek-v3", "rope_scaling.attention_factor", "1.5",
       "\"rope_scaling.attention_factor\" is 1.5"},
      {"deepseek-v3", "rope_scaling.truncate", "false", "\"rope_scaling.truncate\" is false"},
      {"deepseek-v3", "rope_scaling.rope_theta", "20000",
       "\"rope_scaling.rope_theta\" is 20000.0, another place of the file says 10000.0"},
      {"deepseek-v3", "rope_scaling.partial_rotary_factor", "0.5",
       "is 0.5, must be a number in [1"},
      {"deepseek-v3", "rope_parameters", "{\"rope_type\": \"yarn\"}",
       "\"rope_parameters.factor\" is missing"},
      {"deepseek-v3", "rope_parameters", R"({"rope_type": "default", "rope_theta": 10000})",
       "\"rope_parameters\" and \"rope_scaling\" differ"},
      {"deepseek-v3", "rope_parameters", R"({"full_attention": {"rope_type": "default"}})",
       "\"rope_parameters\" is an object"},
      // Quantisation.
      {"deepseek-v3", "quantization_config", "\"fp8\"", "\"quantization_config\" is \"fp8\""},
      {"deepseek-v3", "quantization_config", "{}",
       "\"quantization_config.quant_method\" is missing"},
      {"deepseek-v3", "quantization_config.quant_method", "\"gptq\"",
       "is \"gptq\", must be \"fp8\""},
      {"deepseek-v3", "quantization_config.fmt", "\"e5m2\"", "is \"e5m2\", must be \"e4m3\""},
      {"deepseek-v3", "quantization_config.activation_scheme", "\"static\"", "must be \"dynamic\""},
      {"deepseek-v3", "quantization_config.weight_block_size", "",
       "weight_block_size\" is missing"},
      {"deepseek-v3", "quantization_config.weight_block_size", "128", "is 128, must be [128, 128]"},
      {"deepseek-v3", "quantization_config.weight_block_size", "[64, 128]", "is [64,128], must be"},
      {"deepseek-v3", "quantization_config.weight_block_size", "[128, 128, 1]",
       "must be [128, 128]"},
      {"deepseek-v3", "quantization_config.weight_block_size", "[0, 0]", "is [0,0]"},
      {"deepseek-v3", "quantization_config.scale_fmt", "\"e8m7\"", "scale_fmt\" is \"e8m7\""},
      {"deepseek-v3", "quantization_config.quant_method", "\"compressed-tensors\"",
       "\"quantization_config.format\" is missing, must be \"int-quantized\""},
      {"deepseek-v3", "quantization_config.quant_method", "\"w8a8_int8\"",
       "\"quantization_config.fmt\" is \"e4m3\", must be absent"},
      {"deepseek-v3", "quantization_config", R"({"quant_method": "blockwise_int8"})",
       "\"quantization_config.activation_scheme\" is missing"},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "blockwise_int8", "activation_scheme": "dynamic",
           "weight_block_size": [1, 64]})",
       "weight_block_size\" is [1,64], must be [128, 128]"},
      {"deepseek-v3", "quantization_config", R"({"quant_method": "w4afp8", "group_size": 32})",
       "\"quantization_config.group_size\" is 32"},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "w4afp8", "weight_block_size": [1, 128]})",
       "weight_block_size\" is [1,128], must be [128, 128]"},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "w4afp8", "linear_activation_scheme": "static"})",
       "linear_activation_scheme\" is \"static\""},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "awq", "bits": 4, "group_size": -1, "zero_point": true})",
       "\"quantization_config.group_size\" is -1, must be 32, 64 or 128"},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": false})",
       "\"quantization_config.zero_point\" is false, must be true"},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": true,
           "version": "gemv"})",
       "version\" is \"gemv\", must be \"gemm\""},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "awq", "bits": 3, "group_size": 64, "zero_point": true})",
       "\"quantization_config.bits\" is 3"},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "w8a8_int8", "ignore": ["re:.*gate"]})",
       "\"quantization_config.ignore\" is [\"re:.*gate\"], must be a list of names of modules, "
       "without patterns"},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "w8a8_int8", "quant_description": {"lm_head.weight": "FLOAT"}})",
       "quant_description\" is an object"},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "compressed-tensors", "format": "pack-quantized"})",
       "is \"pack-quantized\", must be \"int-quantized\""},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "compressed-tensors", "format": "int-quantized"})",
       "config_groups\" is missing, must be an object of one group"},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "compressed-tensors", "format": "int-quantized",
           "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4}}}})",
       "\"config_groups.group_0.weights.num_bits\" is 4"},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "compressed-tensors", "format": "int-quantized",
           "config_groups": {"group_0": {"targets": ["Linear"], "weights":
             {"num_bits": 8, "type": "int", "strategy": "tensor"}}}})",
       "group_0.weights.strategy\" is \"tensor\", must be \"channel\""},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "compressed-tensors", "format": "int-quantized",
           "config_groups": {"group_0": {"targets": ["Linear"], "weights":
             {"num_bits": 8, "type": "int", "strategy": "channel"}}}})",
       "group_0.input_activations\" is missing, must be an object"},
      {"deepseek-v3", "quantization_config",
       R"({"quant_method": "compressed-tensors", "format": "int-quantized",
           "config_groups": {"group_0": {"targets": ["Linear"], "weights":
             {"num_bits": 8, "type": "int", "strategy": "channel"}, "input_activations":
             {"num_bits": 8, "type": "int", "strategy": "token"}}}})",
       "group_0.input_activations.dynamic\" is missing, must be true"},
      {"deepseek-v3", "quantization_config.modules_to_not_convert", "\"lm_head\"",
       "modules_to_not_convert\" is \"lm_head\", must be a list of names"},
      {"deepseek-v3", "quantization_config.ignored_layers", "[1]", "must be a list of names"},
      {"deepseek-v3", "quantization_config.modules_to_convert", "[\"model\"]", "must be absent"},
      {"deepseek-v3", "quantization_config.expert_dtype", "\"fp4\"", "must be \"fp8\""},
      {"deepseek-v3", "quantization_config.dequantize", "true", "--dequantize does that here"},
      // Special tokens.
      {"deepseek-v3", "bos_token_id", "", "\"bos_token_id\" is missing"},
      {"deepseek-v3", "bos_token_id", "129280", "\"bos_token_id\" is 129280"},
      {"deepseek-v3", "eos_token_id", "", "\"eos_token_id\" is missing"},
      {"deepseek-v3", "eos_token_id", "-1", "\"eos_token_id\" is -1, must be a token id below"},
      {"deepseek-v3", "eos_token_id", "[]", "\"eos_token_id\" is [], must be a list of 1 to 64"},
      {"deepseek-v3", "eos_token_id", "[1, 129280]", "\"eos_token_id\" holds 129280"},
      {"deepseek-v3", "eos_token_id", "[1, [2]]", "\"eos_token_id\" holds [2]"},
      {"deepseek-v3", "eos_token_id", "\"</s>\"", "\"eos_token_id\" is \"</s>\""},
      {"deepseek-v3", "eos_token_id", "1.0", "\"eos_token_id\" is 1.0"},
      // What the program does not compute.
      {"deepseek-v3", "layer_types", R"(["full_attention", "sliding_attention"])",
       "\"layer_types\" is [\"full_attention\",\"sliding_attention\"], must be absent"},
      {"deepseek-v3", "partial_rotary_factor", "0.5", "\"partial_rotary_factor\" is 0.5"},
      {"deepseek-v3", "num_local_experts", "8", "must be n_routed_experts (256)"},
      {"deepseek-v3", "attention_bias", "true", "\"attention_bias\" is true, must be false"},
      {"deepseek-v3", "attention_bias", "\"no\"",
       "\"attention_bias\" is \"no\", must be true or false"},
      {"deepseek-v3", "tie_word_embeddings", "true",
       "\"tie_word_embeddings\" is true, must be false"},
      {"deepseek-v3", "hidden_act", "\"gelu\"", "\"hidden_act\" is \"gelu\", must be \"silu\""},
      {"deepseek-v3", "hidden_act", "", "\"hidden_act\" is missing, must be \"silu\""},
      {"deepseek-v3", "sliding_window", "4096", "\"sliding_window\" is 4096, must be absent"},
      {"deepseek-v3", "index_topk", "2048", "\"index_topk\" is 2048, must be absent"},
      {"deepseek-v3", "index_n_heads", "64", "\"index_n_heads\" is 64, must be absent"},
      {"deepseek-v3", "index_head_dim", "128", "\"index_head_dim\" is 128, must be absent"},
      {"deepseek-v3", "layer_types", R"(["indexed_attention"])", "\"layer_types\" is"},
      // The indexer.
      {"deepseek-v3.2", "index_n_heads", "", "\"index_n_heads\" is missing"},
      {"deepseek-v3.2", "index_n_heads", "0", "\"index_n_heads\" is 0, must be an integer in"},
      {"deepseek-v3.2", "index_n_heads", "1025", "\"index_n_heads\" is 1025"},
      {"deepseek-v3.2", "index_head_dim", "", "\"index_head_dim\" is missing"},
      {"deepseek-v3.2", "index_head_dim", "96", "\"index_head_dim\" is 96, must be a power of two"},
      {"deepseek-v3.2", "index_head_dim", "32",
       "\"index_head_dim\" is 32, must be at least qk_rope_head_dim (64)"},
      {"deepseek-v3.2", "index_topk", "null", "\"index_topk\" is null"},
      {"deepseek-v3.2", "index_topk", "0", "\"index_topk\" is 0"},
      {"deepseek-v3.2", "index_topk", "\"2048\"", "\"index_topk\" is \"2048\""},
      {"deepseek-v3.2", "q_lora_rank", "null", "\"q_lora_rank\" is null, must be an integer"},
      {"deepseek-v3.2", "indexer_rope_interleave", "true",
       "\"indexer_rope_interleave\" is true, must be absent"},
      {"deepseek-v3.2", "index_topk_freq", "4", "\"index_topk_freq\" is 4, must be absent"},
      {"deepseek-v3.2", "index_topk_pattern", "\"FS\"", "\"index_topk_pattern\" is \"FS\""},
      {"deepseek-v3.2", "index_share_for_mtp_iteration", "true",
       "\"index_share_for_mtp_iteration\" is true"},
      {"deepseek-v3.2", "layer_types", R"(["indexed_attention"])",
       "\"layer_types\" is [\"indexed_attention\"], must be \"indexed_attention\" for each of "
       "num_hidden_layers (61)"},
      {"deepseek-v3.2", "layer_types", R"(["full_attention"])", "\"layer_types\" is"},
      {"deepseek-v3.2", "head_dim", "128", "\"head_dim\" is 128"},
      {"deepseek-v3.2", "mlp_bias", "true", "\"mlp_bias\" is true, must be absent"},
      {"deepseek-v3.2", "scoring_func", "\"softmax\"",
       "must be \"sigmoid\" for DeepseekV32ForCausalLM"},
      {"deepseek-v3.2", "topk_method", "\"greedy\"", "\"noaux_tc\" for DeepseekV32ForCausalLM"},
      {"deepseek-v3.2", "model_type", "\"deepseek_v3\"", "must be \"deepseek_v32\""},
      {"deepseek-v3", "qk_layernorm", "true", "\"qk_layernorm\" is true, must be absent"},
      {"deepseek-v3", "use_mla", "false", "\"use_mla\" is false, must be true"},
      {"deepseek-v3", "vision_config", "{\"a\": 1}",
       "\"vision_config\" is an object, must be absent"},
  };
  return cases;
}

TEST(HostileConfig, names_key_value_and_rule) {
  EXPECT_GE(refused_edits().size(), 100u);
  for (const Refused& edit : refused_edits()) {
    const Result<ModelConfig> config =
        parse_model_config(edited_config(edit.base, edit.key, edit.value), "");
    ASSERT_FALSE(config) << edit.key << " = " << edit.value << " was accepted";
    EXPECT_THAT(config.error().message, HasSubstr(edit.message)) << edit.key << " = " << edit.value;
    EXPECT_THAT(config.error().message, HasSubstr("config.json: "));
    EXPECT_THAT(config.error().message, Not(HasSubstr("\n")));
  }
}

TEST(HostileConfig, refuses_documents_that_are_not_a_configuration) {
  for (const std::string& text :
       {std::string(), std::string("null"), std::string("[]"), std::string("7"), std::string("{"),
        std::string("{}"), std::string("\xef\xbb\xbf{}"), std::string("\0", 1),
        std::string("{\"architectures\": [\"\xff\"]}"), std::string(100'000, '['),
        "{\"a\":" + std::string(500'000, '[') + std::string(500'000, ']') + "}",
        std::string("{\"hidden_size\": 1, \"hidden_size\": 2}"), std::string(2 << 20, ' ')}) {
    const Result<ModelConfig> config = parse_model_config(text, "");
    ASSERT_FALSE(config) << text.substr(0, 40);
    EXPECT_LT(config.error().message.size(), 300u);
    EXPECT_THAT(config.error().message, Not(HasSubstr("\n")));
  }
  const std::string valid = config_text("deepseek-v3");
  EXPECT_FALSE(parse_model_config(valid, "[]"));
  EXPECT_FALSE(parse_model_config(valid, "{"));
  EXPECT_FALSE(parse_model_config(valid, "{\"eos_token_id\": \"x\"}"));
}

TEST(HostileConfig, a_long_or_wild_value_stays_one_readable_line) {
  const std::string wild = "\"" + std::string(100'000, 'x') + "\\n\\u0007\"";
  for (const char* key :
       {"hidden_size", "topk_method", "model_type", "hidden_act", "eos_token_id"}) {
    const Result<ModelConfig> config =
        parse_model_config(edited_config("deepseek-v3", key, wild), "");
    ASSERT_FALSE(config);
    EXPECT_LT(config.error().message.size(), 300u);
  }
  const Result<ModelConfig> config =
      parse_model_config(edited_config("deepseek-v3", "hidden_act", "\"a\\nb\\u001b[31m\""), "");
  EXPECT_THAT(config.error().message, HasSubstr("\\n"));
  EXPECT_THAT(config.error().message, Not(HasSubstr("\x1b")));
  const Result<ModelConfig> wild_key = parse_model_config(
      edited_config("deepseek-v3", "rope_scaling", R"({"type":"yarn","a\nb":1})"), "");
  ASSERT_FALSE(wild_key);
  EXPECT_THAT(wild_key.error().message, Not(HasSubstr("\n")));
}

TEST(HostileConfig, every_truncation_is_refused) {
  std::string text = config_text("deepseek-v3");
  text.resize(text.rfind('}'));
  for (size_t length = 0; length <= text.size(); ++length) {
    ASSERT_FALSE(parse_model_config(std::string_view(text).substr(0, length), "")) << length;
  }
}

// Replaces, inserts and deletes bytes, digits most often: most results are still JSON.
std::string damaged(std::string text, std::mt19937& random) {
  static constexpr std::string_view kBytes = "0123456789-.eE+tfn\"[]{},: \n\xff\x01";
  const int edits = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < edits; ++i) {
    const size_t at = random() % text.size();
    const char byte = kBytes[random() % kBytes.size()];
    switch (random() % 3) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      default:
        text.erase(at, 1 + random() % 8);
    }
  }
  return text;
}

TEST(HostileConfig, damaged_configurations_never_crash_and_never_take_long) {
  constexpr uint32_t kSeed = 20260;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  int accepted = 0;
  for (const char* base :
       {"deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "deepseek-v3.2", "kimi-k2"}) {
    const std::string text = config_text(base);
    for (int i = 0; i < 1000; ++i) {
      const std::string hostile = damaged(text, random);
      const CpuStopwatch watch;
      const Result<ModelConfig> config = parse_model_config(hostile, "");
      EXPECT_LT(watch.seconds(), 2.0) << hostile;
      if (!config) continue;
      ++accepted;
      for (const float frequency : make_rope_params(*config).inv_freq) {
        ASSERT_TRUE(frequency > 0 && frequency <= 1) << hostile;
      }
    }
  }
  // Both outcomes occur, or the damage is too weak or too strong to mean anything.
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 4900);
}

}  // namespace
}  // namespace fathom::config
