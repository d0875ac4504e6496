// What a DeepSeek-V3.2 asks of ranks, cache, operators and time, from its published configuration.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/startup_error.h"
#include "model/network.h"
#include "tests/comm/place.h"
#include "tests/model/backends.h"
#include "tests/model/v32_checkpoint.h"
#include "tests/source_tree.h"
#include "weights/loader.h"

namespace fathom::model {
namespace {

using tensor::DType;
using testing::HasSubstr;

config::ModelConfig v32_config(const std::string& directory) {
  return value_or_throw(config::load_model_config(source_path(directory)));
}

std::map<std::string, weights::Parameter> v32_part(const comm::RankContext& rank) {
  tensor::Arena nowhere;
  std::vector<weights::Parameter> parameters;
  layers::WeightBuilder builder(nowhere, {.plain = DType::kBf16, .fp8 = true},
                                cpu::reference_backend(), parameters, rank);
  const Network network(v32_config("models/configs/deepseek-v3.2"), true, builder);
  std::map<std::string, weights::Parameter> by_name;
  for (const weights::Parameter& parameter : parameters) by_name[parameter.name] = parameter;
  return by_name;
}

TEST(V32Model, has_a_whole_indexer_in_every_layer_on_every_rank) {
  comm::Place tp(5, 8);
  const auto whole = v32_part({}), part = v32_part({.tp = &tp});
  for (const auto& parameters : {whole, part})
    for (const int layer : {0, 3, 60, 61}) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.indexer.";
      const auto shown = [&](const std::string& name) {
        return parameters.at(prefix + name).data.describe();
      };
      EXPECT_EQ(shown("wq_b.weight"), "f8_e4m3[8192, 1536]");
      EXPECT_EQ(parameters.at(prefix + "wq_b.weight").scale.describe(), "f32[64, 12]");
      EXPECT_EQ(shown("wk.weight"), "f8_e4m3[128, 7168]");
      EXPECT_EQ(shown("weights_proj.weight"), "bf16[64, 7168]");
      EXPECT_EQ(shown("k_norm.weight"), "bf16[128]");
      EXPECT_EQ(shown("k_norm.bias"), "f32[128]");
    }
  EXPECT_LT(part.at("model.layers.3.self_attn.q_b_proj.weight").data.num_elements(),
            whole.at("model.layers.3.self_attn.q_b_proj.weight").data.num_elements());
}

// Bytes of a token in 62 layers, and V3's.
TEST(V32Model, keeps_keys_beside_the_latent_rows) {
  const auto bytes_of = [](const std::string& directory, DType cache) {
    KvGroupSpec spec{.name = "mla", .num_layers = 62, .format = {}};
    spec.format = layers::cache_format(v32_config(directory), cache);
    EXPECT_EQ(spec.block_bytes() % spec.block_tokens, 0);
    return spec.block_bytes() / spec.block_tokens;
  };
  EXPECT_EQ(bytes_of("models/configs/deepseek-v3.2", DType::kF8E4M3), 48856);
  EXPECT_EQ(bytes_of("models/configs/deepseek-v3.2", DType::kBf16), 79608);
  EXPECT_EQ(bytes_of("models/configs/deepseek-v3.2", DType::kF32), 174592);
  EXPECT_EQ(bytes_of("models/configs/deepseek-v3", DType::kF8E4M3), 40672);
}

TEST(V32Model, has_planes_of_the_same_blocks_with_spare_ones_in_the_last_layer) {
  KvGroupSpec spec{.name = "mla", .num_layers = 3, .format = {}};
  spec.format = layers::cache_format(v32_config("models/configs/deepseek-v3.2"), DType::kF8E4M3);
  const KvStorage kv = KvStorage::allocate(spec, 5, cpu::reference_backend(), 2);
  EXPECT_EQ(kv.num_blocks(), 5);
  std::vector<std::string> shapes;
  for (const tensor::Tensor& plane : kv.layers(0, 2)) shapes.push_back(plane.describe());
  EXPECT_THAT(shapes,
              testing::ElementsAre("u8[2, 5, 64, 656]", "u8[2, 5, 64, 128]", "u8[2, 5, 64, 4]"));
  for (const int layer : {0, 1, 2}) {
    const int64_t blocks = layer == 2 ? 7 : 5;
    EXPECT_EQ(kv.layer(layer).num_blocks(), blocks);
    EXPECT_EQ(kv.index_layer(layer).num_blocks(), blocks);
    EXPECT_EQ(kv.index_layer(layer).values.dtype(), DType::kF8E4M3);
    EXPECT_EQ(kv.index_layer(layer).scales.dim(0), blocks);
  }
  // A layer's rows begin where those of the layer before end, in each plane.
  EXPECT_EQ(kv.index_layer(1).scales.row<float>(0),
            kv.index_layer(0).scales.row<float>(0) + 5 * 64);
  spec.format.index.reset();
  EXPECT_TRUE(KvStorage::allocate(spec, 1, cpu::reference_backend()).index_layer(0).is_null());
}

std::string v32_refusal(const config::ModelConfig& config, const ops::Backend& backend,
                        const ModelOptions& options = {}) {
  try {
    Model::create(config, options, backend);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "";
}

TEST(V32Model, is_refused_by_the_names_of_the_operators_that_a_backend_lacks) {
  const config::ModelConfig config = v32_config("tests/data/v32");
  EXPECT_EQ(v32_refusal(config, cpu::fast_backend()), "");
  ops::Backend backend = cpu::fast_backend();
  backend.index_append = {};
  backend.index_query = {};
  backend.index_scores = {};
  backend.top_rows = {};
  backend.mla_sparse = {};
  const std::string refusal = v32_refusal(config, backend);
  for (const char* op : {"index_append", "index_query", "index_scores", "top_rows", "mla_sparse"})
    EXPECT_THAT(refusal, HasSubstr("has no operator " + std::string(op)));
  // Others are as they were.
  EXPECT_EQ(v32_refusal(v32_config("models/demo"), backend), "");
}

TEST(V32Model, needs_keys_of_128_values_for_fp8) {
  const config::ModelConfig config = v32_config("tests/data/v32");  // 64
  for (const DType cache : {DType::kBf16, DType::kF8E4M3})
    EXPECT_THAT(v32_refusal(config, cpu::fast_backend(), {.kv_cache_dtype = cache}),
                HasSubstr("\"index_head_dim\" is 64, must be 128 with a cache of "));
}

TEST(V32Model, costs_no_more_attention_for_rows_that_nobody_reads) {
  const auto model = Model::create(v32_config("tests/data/v32"), {}, cpu::reference_backend());
  const auto macs = [&](int64_t tokens, int64_t kv_begin) {
    return model->attention_macs(AttentionForm::kAbsorbed, tokens, kv_begin);
  };
  // A row more for each of 4 heads and 2 layers, up to 64 of them; then a key for each of 32 heads.
  EXPECT_EQ(macs(1, 10) - macs(1, 9), 2 * 4 * (80 + 64));
  EXPECT_EQ(macs(1, 1001) - macs(1, 1000), 2 * 32 * 64);
  // In the form that a slice has whatever its length the same.
  EXPECT_EQ(macs(100, 64), model->attention_macs(AttentionForm::kExpanded, 100, 64));
  EXPECT_EQ(model->attention_form(64, 64), AttentionForm::kAbsorbed);
  EXPECT_EQ(model->attention_form(65, 64), AttentionForm::kExpanded);
}

}  // namespace
}  // namespace fathom::model
