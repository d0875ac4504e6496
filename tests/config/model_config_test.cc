// What valid configurations become: published models, the demo model, the fixtures and accepted spellings.

#include "config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/config/edited_config.h"
#include "tests/scratch_directory.h"
#include "tests/shared_files.h"
#include "tests/source_tree.h"

namespace fathom::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ModelConfig published(const std::string& name) {
  Result<ModelConfig> config = load_model_config(source_path("models/configs/" + name));
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : ModelConfig{};
}

TEST(ModelConfig, reads_v2_lite) {
  const ModelConfig config = published("deepseek-v2-lite");
  EXPECT_EQ(config.architecture, Architecture::kDeepseekV2);
  EXPECT_EQ(config.hidden_size, 2048);
  EXPECT_EQ(config.num_hidden_layers, 27);
  EXPECT_FALSE(config.q_lora_rank);
  EXPECT_EQ(config.n_routed_experts, 64);
  EXPECT_EQ(config.num_experts_per_tok, 6);
  EXPECT_EQ(config.n_shared_experts, 2);
  EXPECT_EQ(config.intermediate_size, 10944);
  EXPECT_EQ(config.scoring_func, ScoringFunc::kSoftmax);
  EXPECT_EQ(config.topk_method, TopkMethod::kGreedy);
  EXPECT_EQ(config.vocab_size, 102400);
  EXPECT_EQ(config.qk_head_dim(), 192);
  EXPECT_EQ(config.kv_dim(), 576);
  EXPECT_FALSE(config.quantization_config);
  EXPECT_THAT(config.unused_keys, IsEmpty());
}

TEST(ModelConfig, reads_v2) {
  const ModelConfig config = published("deepseek-v2");
  EXPECT_EQ(config.topk_method, TopkMethod::kGroupLimitedGreedy);
  EXPECT_EQ(config.n_group, 8);
  EXPECT_EQ(config.topk_group, 3);
  EXPECT_EQ(config.q_lora_rank, 1536);
  EXPECT_EQ(config.routed_scaling_factor, 16.0);
  EXPECT_EQ(config.rope_scaling->mscale, 0.707);
}

TEST(ModelConfig, reads_v3) {
  const ModelConfig config = published("deepseek-v3");
  EXPECT_EQ(config.architecture, Architecture::kDeepseekV3);
  EXPECT_EQ(config.scoring_func, ScoringFunc::kSigmoid);
  EXPECT_EQ(config.topk_method, TopkMethod::kNoauxTc);
  EXPECT_TRUE(config.norm_topk_prob);
  EXPECT_EQ(config.num_nextn_predict_layers, 1);
  EXPECT_EQ(config.first_k_dense_replace, 3);
  EXPECT_FALSE(config.is_moe_layer(2));
  EXPECT_TRUE(config.is_moe_layer(3));
  ASSERT_TRUE(config.quantization_config);
  EXPECT_FALSE(config.quantization_config->scale_ue8m0);
  EXPECT_EQ(config.rope_scaling->factor, 40);
  EXPECT_EQ(config.max_position_embeddings, 163840);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(1));
}

// What the published INT8 and W4AFP8 checkpoints of R1 say, and what conversions of others add.
TEST(ModelConfig, reads_the_published_forms_of_int8_and_int4) {
  struct Form {
    const char* section;
    QuantMethod method;
    std::vector<std::string> unquantised = {};
  };
  for (const Form& form : std::vector<Form>{
           {R"({"quant_method": "blockwise_int8", "activation_scheme": "dynamic",
                "weight_block_size": [128, 128], "ignored_layers": ["lm_head"]})",
            QuantMethod::kInt8Blocks,
            {"lm_head"}},
           {R"({"quant_method": "w8a8_int8"})", QuantMethod::kInt8Channels},
           {R"({"quant_method": "w4afp8"})", QuantMethod::kW4AFp8},
           {R"({"quant_method": "w4afp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                "linear_activation_scheme": "dynamic", "moe_activation_scheme": "static",
                "weight_block_size": [128, 128], "group_size": 128,
                "ignored_layers": ["lm_head"]})",
            QuantMethod::kW4AFp8},
           {R"({"quant_method": "w8a8_int8", "is_dynamic": true, "ignore": ["lm_head"],
                "packed_modules_mapping": {"gate_up_proj": ["gate_proj", "up_proj"]}})",
            QuantMethod::kInt8Channels,
            {"lm_head"}},
           {R"({"quant_method": "compressed-tensors", "format": "int-quantized",
                "config_groups": {"group_0": {
                  "input_activations": {"actorder": null, "block_structure": null, "dynamic": true,
                    "group_size": null, "num_bits": 8, "observer": "memoryless",
                    "observer_kwargs": {}, "strategy": "token", "symmetric": true, "type": "int"},
                  "output_activations": null,
                  "weights": {"actorder": null, "block_structure": null, "dynamic": false,
                    "group_size": null, "num_bits": 8, "observer": "minmax",
                    "observer_kwargs": {}, "strategy": "channel", "symmetric": true,
                    "type": "int"},
                  "targets": ["Linear"]}},
                "ignore": ["lm_head", "model.layers.0.self_attn"], "kv_cache_scheme": null,
                "quantization_status": "compressed"})",
            QuantMethod::kInt8Channels,
            {"lm_head", "model.layers.0.self_attn"}}}) {
    const Result<ModelConfig> config =
        parse_model_config(edited_config("deepseek-v3", "quantization_config", form.section), "");
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->quantization_config->method, form.method) << form.section;
    EXPECT_EQ(config->quantization_config->unquantised_modules, form.unquantised);
  }
  EXPECT_EQ(published("deepseek-v3").quantization_config->method, QuantMethod::kFp8Blocks);
}

TEST(ModelConfig, reads_v3_2) {
  const ModelConfig config = published("deepseek-v3.2");
  EXPECT_EQ(config.architecture, Architecture::kDeepseekV32);
  EXPECT_EQ(config.index_config, (IndexConfig{.n_heads = 64, .head_dim = 128, .topk = 2048}));
  EXPECT_EQ(config.scoring_func, ScoringFunc::kSigmoid);
  EXPECT_TRUE(config.quantization_config->scale_ue8m0);
  EXPECT_THAT(config.unused_keys, IsEmpty());
  EXPECT_FALSE(published("deepseek-v3").index_config);
}

// As transformers 5.24 saves one: rope_parameters, layer_types, mlp_layer_types, head_dim.
TEST(ModelConfig, reads_v3_2_as_transformers_saves_it) {
  const Result<ModelConfig> config = load_model_config(source_path("tests/data/v32"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->index_config, (IndexConfig{.n_heads = 32, .head_dim = 64, .topk = 64}));
  EXPECT_EQ(config->rope_scaling->factor, 4);
  EXPECT_EQ(config->topk_method, TopkMethod::kNoauxTc);
  EXPECT_THAT(config->unused_keys, IsEmpty());
}

TEST(ModelConfig, reads_moonlight_and_kimi_k2) {
  const ModelConfig moonlight = published("moonlight-16b-a3b");
  EXPECT_EQ(moonlight.n_group, 1);
  EXPECT_EQ(moonlight.rope_theta, 50000);
  EXPECT_FALSE(moonlight.rope_scaling);
  EXPECT_EQ(moonlight.rms_norm_eps, 1e-5);
  const ModelConfig kimi = published("kimi-k2");
  EXPECT_EQ(kimi.model_type, "kimi_k2");
  EXPECT_EQ(kimi.n_routed_experts, 384);
  EXPECT_EQ(kimi.num_attention_heads, 64);
  EXPECT_EQ(kimi.rope_scaling->beta_fast, 1.0);
}

TEST(ModelConfig, reads_the_demo_model_with_its_generation_config) {
  const Result<ModelConfig> config = load_model_config(source_path("models/demo"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->num_hidden_layers, 4);
  EXPECT_EQ(config->num_nextn_predict_layers, 1);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1));
}

TEST(ModelConfig, reads_the_fixtures) {  // in ../shared
  if (!is_shared("fixtures")) GTEST_SKIP() << not_shared("fixtures");
  for (const std::string name : {"v2", "v2-lite", "v3-fp8", "v3-one-group"}) {
    const Result<ModelConfig> config = load_model_config(shared_path("fixtures/" + name));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_THAT(config->unused_keys, IsEmpty());
  }
}

struct Accepted {
  const char *base, *key, *value;
};

TEST(ModelConfig, accepts_what_does_not_change_the_computation) {
  for (const Accepted& edit : std::vector<Accepted>{
           {"deepseek-v3", "auto_map", R"({"AutoModel": "modeling.Model"})"},
           {"deepseek-v3", "num_key_value_heads", "128"},
           {"deepseek-v3", "num_key_value_heads", ""},
           {"deepseek-v3", "head_dim", "64"},
           {"deepseek-v3", "qk_head_dim", "192"},
           {"deepseek-v3", "rope_interleave", "true"},
           {"deepseek-v3", "sliding_window", "null"},
           {"deepseek-v3", "mlp_bias", "false"},
           {"deepseek-v3", "eos_token_id", "[1, 5, 1]"},
           {"deepseek-v3", "quantization_config", "null"},
           {"deepseek-v3", "quantization_config.modules_to_not_convert", "[]"},
           {"deepseek-v3", "quantization_config.modules_to_not_convert",
            R"(["lm_head", "model.layers.0.mlp.gate"])"},
           {"deepseek-v3", "quantization_config.ignored_layers", R"(["lm_head"])"},
           {"deepseek-v3", "quantization_config.modules_to_convert", "null"},
           {"deepseek-v3", "quantization_config.dequantize", "false"},
           {"deepseek-v3", "quantization_config.expert_dtype", R"("fp8")"},
           {"deepseek-v3", "quantization_config.scale_fmt", R"("ue8m0")"},
           {"deepseek-v3", "rope_scaling.rope_theta", "10000"},
           {"deepseek-v3", "rope_scaling.truncate", "true"},
           {"deepseek-v3", "rope_scaling.attention_factor", "null"},
           {"deepseek-v3", "rope_scaling.partial_rotary_factor", "1.0"},
           {"deepseek-v3", "partial_rotary_factor", "1.0"},
           {"deepseek-v3", "output_router_logits", "false"},
           {"deepseek-v3", "unsloth_fixed", "true"},
           {"deepseek-v3", "num_local_experts", "256"},
           {"deepseek-v2-lite", "layer_types", R"(["full_attention"])"},
           {"deepseek-v3", "num_nextn_predict_layers", ""},
           {"deepseek-v3", "model_type", ""},
           {"deepseek-v3", "rope_scaling", "null"},
           {"deepseek-v3", "rope_scaling", R"({"rope_type": "default"})"},
           {"deepseek-v3", "rope_scaling.rope_type", R"("yarn")"},
           {"deepseek-v3", "scoring_func", ""},
           {"deepseek-v3", "topk_method", ""},
           {"deepseek-v2-lite", "n_group", "null"},
           {"deepseek-v2-lite", "n_shared_experts", "null"},
           {"deepseek-v3.2", "indexer_rope_interleave", "false"},
           {"deepseek-v3.2", "index_share_for_mtp_iteration", "false"},
           {"deepseek-v3.2", "index_topk_freq", "null"},
           {"deepseek-v3.2", "head_dim", "64"},
           {"deepseek-v3.2", "mlp_bias", "false"},
           {"deepseek-v3", "index_topk", "null"},
           {"moonlight-16b-a3b", "first_k_dense_replace", "27"},
           {"moonlight-16b-a3b", "n_routed_experts", "null"}}) {
    const Result<ModelConfig> config =
        parse_model_config(edited_config(edit.base, edit.key, edit.value), "");
    ASSERT_TRUE(config) << edit.key << " = " << edit.value << ": " << config.error().message;
    EXPECT_THAT(config->unused_keys, IsEmpty());
  }
}

TEST(ModelConfig, reads_both_places_of_the_rotary_settings) {
  const std::string text = edited_config("deepseek-v3", "rope_theta", "");
  std::string moved = edit_config(text, "rope_parameters",
                                  R"({"rope_type": "yarn", "rope_theta": 20000, "factor": 8,
                                      "original_max_position_embeddings": 1024})");
  moved = edit_config(moved, "rope_scaling", "");
  const Result<ModelConfig> config = parse_model_config(moved, "");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rope_theta, 20000);
  EXPECT_EQ(config->rope_scaling->factor, 8);
  EXPECT_EQ(config->rope_scaling->beta_fast, 32);
}

// What transformers writes when a file of the older form is read, changed and saved.
TEST(ModelConfig, reads_rotary_settings_that_two_places_give_alike) {
  const char* const kPublished =
      R"({"rope_type": "yarn", "type": "yarn", "rope_theta": 10000, "factor": 40, "beta_fast": 32,
          "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
          "original_max_position_embeddings": 4096})";
  const std::string both = edited_config("deepseek-v3", "rope_parameters", kPublished);
  for (const std::string& text :
       {both, edit_config(both, "rope_theta", ""), edit_config(both, "rope_scaling", ""),
        edit_config(both, "rope_scaling.rope_theta", "10000.0")}) {
    const Result<ModelConfig> config = parse_model_config(text, "");
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->rope_theta, 10000);
    EXPECT_EQ(config->rope_scaling, published("deepseek-v3").rope_scaling);
  }
}

TEST(ModelConfig, reads_kinds_of_layers_that_are_listed_too) {
  const std::string text = edited_config("deepseek-v3", "num_hidden_layers", "4");
  const auto read = [&](const char* kinds) {
    return parse_model_config(edit_config(text, "mlp_layer_types", kinds), "");
  };
  EXPECT_TRUE(read(R"(["dense", "dense", "dense", "sparse"])"));
  for (const char* kinds : {R"(["dense", "dense", "sparse", "sparse"])", R"(["dense"])", "4"}) {
    const Result<ModelConfig> config = read(kinds);
    ASSERT_FALSE(config) << kinds;
    EXPECT_THAT(config.error().message, HasSubstr("\"mlp_layer_types\" is"));
  }
}

TEST(ModelConfig, lists_keys_that_nobody_knows) {
  const Result<ModelConfig> config =
      parse_model_config(edited_config("deepseek-v3", "flux_capacitor", "1.21"), "");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->unused_keys, ElementsAre("flux_capacitor"));
}

TEST(ModelConfig, adds_end_tokens_of_generation_config) {
  const std::string text = edited_config("deepseek-v3", "eos_token_id", "7");
  const auto ids = [&](const char* generation) {
    const Result<ModelConfig> config = parse_model_config(text, generation);
    EXPECT_TRUE(config) << config.error().message;
    return config ? config->eos_token_ids : std::vector<int32_t>{};
  };
  EXPECT_THAT(ids(R"({"eos_token_id": [7, 9]})"), ElementsAre(7, 9));
  EXPECT_THAT(ids(R"({"temperature": 0.6})"), ElementsAre(7));
  const Result<ModelConfig> bad = parse_model_config(text, R"({"eos_token_id": 129280})");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message,
            "generation_config.json: \"eos_token_id\" is 129280, must be a token id below "
            "vocab_size (129280)");
}

TEST(ModelConfig, cuts_layers_for_benches) {
  const ModelConfig v3 = published("deepseek-v3");
  const Result<ModelConfig> cut = with_num_layers(v3, 2);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->num_hidden_layers, 2);
  EXPECT_EQ(cut->first_k_dense_replace, 2);
  EXPECT_EQ(cut->num_nextn_predict_layers, 0);
  EXPECT_EQ(with_num_layers(v3, 61)->num_nextn_predict_layers, 1);
  EXPECT_FALSE(with_num_layers(v3, 0));
  EXPECT_THAT(with_num_layers(v3, 62).error().message, HasSubstr("num_layers is 62"));
}

TEST(ModelConfig, names_the_file_that_is_missing_or_not_a_file) {
  const ScratchDirectory scratch;
  const std::string& directory = scratch.path();
  EXPECT_EQ(load_model_config(directory).error().code, ErrorCode::kNotFound);
  std::filesystem::create_symlink("config.json", directory + "/config.json");
  EXPECT_EQ(load_model_config(directory).error().message,
            directory + "/config.json: cannot be read: Too many levels of symbolic links");
  std::filesystem::remove(directory + "/config.json");
  std::filesystem::create_directories(directory + "/config.json");
  EXPECT_EQ(load_model_config(directory).error().message,
            directory + "/config.json: must be a regular file");
  std::filesystem::remove_all(directory + "/config.json");
  std::ofstream(directory + "/config.json") << std::string(2 << 20, ' ');
  EXPECT_THAT(load_model_config(directory).error().message, HasSubstr("longer than 1048576 bytes"));
  std::ofstream(directory + "/config.json") << "version https://git-lfs.github.com/spec/v1\noid";
  EXPECT_THAT(load_model_config(directory).error().message,
              HasSubstr("config.json: is a Git LFS pointer"));
}

}  // namespace
}  // namespace fathom::config
