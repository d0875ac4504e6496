#include "config/draft_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/source_tree.h"

namespace fathom::config {
namespace {

using ::testing::HasSubstr;

const std::string kDemo = source_path("models/demo");

ModelConfig demo() { return load_model_config(kDemo).value(); }

// The published form: the model's settings, one layer, the architecture's name with NextN.
json::Value published() {
  json::Value config =
      json::parse(R"({"architectures": ["DeepseekV3ForCausalLMNextN"], "model_type": "deepseek_v3",
        "bos_token_id": 0, "eos_token_id": 1, "first_k_dense_replace": 3, "hidden_act": "silu",
        "hidden_size": 128, "intermediate_size": 512, "kv_lora_rank": 512,
        "max_position_embeddings": 163840, "moe_intermediate_size": 128, "n_group": 4,
        "n_routed_experts": 16, "n_shared_experts": 1, "norm_topk_prob": true,
        "num_attention_heads": 8, "num_experts_per_tok": 4, "num_hidden_layers": 1,
        "num_nextn_predict_layers": 1, "q_lora_rank": 128, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32,
        "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
        "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_group": 2,
        "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "v_head_dim": 128,
        "vocab_size": 2048})")
          .value();
  return config;
}

std::string refusal(const char* key, const json::Value& value) {
  json::Value config = published();
  config[key] = value;
  const Result<DraftConfig> draft = parse_draft_config(json::dump(config), demo());
  return draft ? "" : draft.error().message;
}

TEST(DraftConfig, the_published_form_has_its_layer_first) {
  EXPECT_EQ(parse_draft_config(json::dump(published()), demo())->layer_idx, 0);
  EXPECT_EQ(load_draft_config(kDemo, demo())->layer_idx, 4);  // behind the others
}

TEST(DraftConfig, every_setting_of_the_layer_must_be_the_models) {
  EXPECT_EQ(refusal("hidden_size", 64),
            "config.json: \"hidden_size\" is 64, the model's is 128: the draft layer was not made "
            "for this model");
  for (const auto& [key, value] : {std::pair<const char*, json::Value>{"kv_lora_rank", 256},
                                   {"q_lora_rank", nullptr},
                                   {"n_routed_experts", 32},
                                   {"routed_scaling_factor", 1.5},
                                   {"rms_norm_eps", 1e-5},
                                   {"rope_theta", 50000},
                                   {"norm_topk_prob", false},
                                   {"vocab_size", 4096},
                                   {"rope_scaling", nullptr}}) {
    EXPECT_THAT(refusal(key, value), HasSubstr(std::string("\"") + key + "\" is ")) << key;
  }
  EXPECT_EQ(refusal("max_position_embeddings", 4096), "");
}

TEST(DraftConfig, a_checkpoint_of_something_else_is_refused) {
  EXPECT_THAT(refusal("num_nextn_predict_layers", 0),
              HasSubstr("\"num_nextn_predict_layers\" is 0"));
  EXPECT_THAT(refusal("architectures", {"LlamaForCausalLM"}), HasSubstr("\"architectures\" is "));
  EXPECT_THAT(refusal("num_hidden_layers", "one"), HasSubstr("\"num_hidden_layers\" is "));
  EXPECT_FALSE(parse_draft_config("[]", demo()));
  EXPECT_THAT(load_draft_config("gone", demo()).error().message, HasSubstr("gone/config.json"));
}

}  // namespace
}  // namespace fathom::config
