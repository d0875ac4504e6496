#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "base/startup_error.h"
#include "cpu/reference/reference_backend.h"
#include "tests/source_tree.h"
#include "weights/loader.h"

namespace fathom::model {
namespace {

using tensor::DType;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

config::ModelConfig demo_config() {
  return value_or_throw(config::load_model_config(source_path("models/demo")));
}

std::map<std::string, weights::Parameter> by_name(const Model& model) {
  std::map<std::string, weights::Parameter> map;
  for (const weights::Parameter& parameter : model.parameters()) {
    EXPECT_TRUE(map.emplace(parameter.name, parameter).second) << parameter.name << " twice";
  }
  return map;
}

std::string startup_error(const config::ModelConfig& config, const ops::Backend& backend,
                          const ModelOptions& options = {}) {
  try {
    Model::create(config, options, backend);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "";
}

TEST(Model, keeps_fp8_matrices_and_dequantises_kv_b_proj) {
  const auto model = Model::create(demo_config(), {}, cpu::reference_backend());
  const auto parameters = by_name(*model);
  const weights::Parameter& expert = parameters.at("model.layers.2.mlp.experts.15.up_proj.weight");
  EXPECT_EQ(expert.data.describe(), "f8_e4m3[128, 128]");
  EXPECT_EQ(expert.scale.describe(), "f32[1, 1]");
  EXPECT_EQ(parameters.at("model.layers.0.self_attn.kv_b_proj.weight").data.describe(),
            "bf16[2048, 512]");
  EXPECT_EQ(parameters.at("lm_head.weight").data.describe(), "bf16[2048, 128]");
  EXPECT_EQ(parameters.at("model.layers.4.eh_proj.weight").data.describe(), "bf16[128, 256]");
  EXPECT_EQ(parameters.at("model.layers.1.mlp.gate.e_score_correction_bias").data.describe(),
            "f32[16]");
}

TEST(Model, dequantises_everything_when_asked_to) {
  const auto model = Model::create(demo_config(), {.dequantize = true, .weight_dtype = DType::kF32},
                                   cpu::reference_backend());
  for (const weights::Parameter& parameter : model->parameters()) {
    EXPECT_EQ(parameter.data.dtype(), DType::kF32) << parameter.name;
    EXPECT_TRUE(parameter.scale.is_null()) << parameter.name;
  }
}

TEST(Model, leaves_out_the_mtp_layer_when_asked_to) {
  const auto with = Model::create(demo_config(), {}, cpu::reference_backend());
  const auto without = Model::create(demo_config(), {.load_mtp = false}, cpu::reference_backend());
  EXPECT_TRUE(with->has_mtp());
  EXPECT_FALSE(without->has_mtp());
  EXPECT_THAT(with->ignored_prefixes(),
              ElementsAre("model.layers.4.embed_tokens.", "model.layers.4.shared_head.head."));
  EXPECT_THAT(without->ignored_prefixes(), ElementsAre("model.layers.4."));
  EXPECT_EQ(with->kv_groups()[0].num_layers, 5);
  EXPECT_EQ(without->kv_groups()[0].num_layers, 4);
  EXPECT_LT(without->weight_bytes(), with->weight_bytes());
  EXPECT_LT(without->workspace_bytes({.max_batch_tokens = 64}),
            with->workspace_bytes({.max_batch_tokens = 64}));
}

TEST(Model, reuses_the_embedding_as_head_when_they_are_tied) {
  config::ModelConfig config = demo_config();
  config.tie_word_embeddings = true;
  const auto model = Model::create(config, {}, cpu::reference_backend());
  EXPECT_EQ(by_name(*model).count("lm_head.weight"), 0u);
}

TEST(Model, runs_on_dummy_weights) {
  const config::ModelConfig config = demo_config();
  const auto model = Model::create(config, {}, cpu::reference_backend());
  const auto stream = cpu::reference_backend().make_stream({.num_threads = 1});
  ASSERT_TRUE(weights::fill_dummy(model->parameters(), {.dummy_seed = 3}));
  model->finish_loading(*stream);
  Workspace workspace = model->make_workspace({.max_batch_tokens = 2});
  const KvStorage kv = KvStorage::allocate(model->kv_groups()[0], 1, cpu::reference_backend());
  int32_t ids[] = {5, 9}, positions[] = {0, 1}, table[] = {0};
  int64_t kv_rows[] = {0, 1};
  ForwardBatch batch;
  batch.token_ids = tensor::Tensor::contiguous(ids, DType::kI32, {2});
  batch.positions = tensor::Tensor::contiguous(positions, DType::kI32, {2});
  batch.kv_rows = tensor::Tensor::contiguous(kv_rows, DType::kI64, {2});
  batch.block_tables = tensor::Tensor::contiguous(table, DType::kI32, {1, 1});
  batch.expanded.push_back({.num_tokens = 2});
  const tensor::Tensor hidden = model->forward(batch, kv, workspace, *stream);
  std::vector<float> logits(static_cast<size_t>(2 * config.vocab_size));
  model->logits(hidden,
                tensor::Tensor::contiguous(logits.data(), DType::kF32, {2, config.vocab_size}),
                *stream);
  for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
  EXPECT_NE(logits[0], logits[1]);
}

TEST(Model, keeps_w_uk_and_w_uv_in_fp8_when_asked_to) {
  const config::ModelConfig config = demo_config();
  const ModelOptions fp8{.absorbed_dtype = DType::kF8E4M3};
  const auto model = Model::create(config, fp8, cpu::reference_backend());
  const auto plain = Model::create(config, {}, cpu::reference_backend());
  EXPECT_EQ(model->absorbed_dtype(), DType::kF8E4M3);
  EXPECT_EQ(plain->absorbed_dtype(), DType::kBf16);
  // Expanded attention still has all of kv_b_proj.
  EXPECT_EQ(by_name(*model).at("model.layers.0.self_attn.kv_b_proj.weight").data.describe(),
            "bf16[2048, 512]");
  // Five layers: W_UK and W_UV of a byte with their scales, where bf16 has W_UK alone.
  const int64_t scales = 5 * 8 * (4 + 4) * 4;
  EXPECT_NEAR(static_cast<double>(model->weight_bytes()),
              static_cast<double>(plain->weight_bytes() + scales), 10000);

  ops::Backend backend = cpu::reference_backend();
  backend.head_linear.lacks = {DType::kF8E4M3};
  EXPECT_THAT(startup_error(config, backend, fp8), HasSubstr("head_linear"));
  EXPECT_THAT(startup_error(config, backend), IsEmpty());
}

TEST(Model, says_what_helps_where_a_backend_lacks_the_matrices_of_awq) {
  config::ModelConfig config = demo_config();
  config.quantization_config->method = config::QuantMethod::kAwq;
  config.quantization_config->group_size = 64;
  ops::Backend backend = cpu::reference_backend();
  EXPECT_THAT(startup_error(config, backend), IsEmpty());
  for (std::vector<DType>* lacks : {&backend.linear.lacks, &backend.moe_experts.lacks})
    *lacks = {DType::kU4x2};
  const std::string error = startup_error(config, backend);
  for (const char* part :
       {"has no operator linear for u4x2", "has no operator moe_experts for u4x2",
        "--dequantize computes such matrices in bf16"})
    EXPECT_THAT(error, HasSubstr(part));
  EXPECT_THAT(startup_error(config, backend, {.dequantize = true}), IsEmpty());
}

TEST(Model, refuses_types_of_w_uk_and_w_uv_that_contradict_the_others) {
  const ops::Backend& backend = cpu::reference_backend();
  const auto error = [&](const ModelOptions& options) {
    return startup_error(demo_config(), backend, options);
  };
  EXPECT_THAT(error({.weight_dtype = DType::kF32, .absorbed_dtype = DType::kF8E4M3}),
              HasSubstr("W_UK and W_UV in f8_e4m3 need bf16 weights beside them, not f32"));
  EXPECT_THAT(error({.weight_dtype = DType::kF32, .absorbed_dtype = DType::kBf16}),
              HasSubstr("W_UK and W_UV in bf16 need bf16 weights"));
  EXPECT_THAT(error({.dequantize = true, .absorbed_dtype = DType::kF8E4M3}),
              HasSubstr("dequantised"));
  EXPECT_THAT(error({.dequantize = true, .absorbed_dtype = DType::kBf16}), IsEmpty());
  // A bf16 checkpoint may have them in FP8.
  config::ModelConfig bf16 = demo_config();
  bf16.quantization_config.reset();
  EXPECT_THAT(startup_error(bf16, backend, {.absorbed_dtype = DType::kF8E4M3}), IsEmpty());
}

TEST(Model, drafts_with_copies_in_fp8_when_asked_to) {
  const config::ModelConfig config = demo_config();
  const ops::Backend& backend = cpu::reference_backend();
  const auto model = Model::create(config, {.fp8_drafts = true}, backend);
  const auto plain = Model::create(config, {}, backend);
  // Of the head and of eh_proj, which the checkpoint is still read into.
  const int64_t hidden = config.hidden_size;
  EXPECT_NEAR(
      static_cast<double>(model->weight_bytes()),
      static_cast<double>(plain->weight_bytes() + config.vocab_size * hidden + 2 * hidden * hidden),
      10000);
  EXPECT_EQ(model->parameters().size(), plain->parameters().size());

  const auto error = [&](const ModelOptions& options) {
    return startup_error(config, backend, options);
  };
  EXPECT_THAT(error({.load_mtp = false, .fp8_drafts = true}), HasSubstr("need an MTP layer"));
  EXPECT_THAT(error({.weight_dtype = DType::kF32, .fp8_drafts = true}),
              HasSubstr("need bf16 weights, not f32"));
  EXPECT_THAT(error({.dequantize = true, .fp8_drafts = true}), HasSubstr("dequantised"));
  config::ModelConfig bf16 = config;
  bf16.quantization_config.reset();
  EXPECT_THAT(startup_error(bf16, backend, {.fp8_drafts = true}), IsEmpty());
  ops::Backend lacking = backend;
  lacking.linear.lacks = {DType::kF8E4M3};
  EXPECT_THAT(startup_error(bf16, lacking, {.fp8_drafts = true}), HasSubstr("linear"));
}

TEST(Model, picks_the_cheaper_attention_form_by_the_slice_alone) {
  const auto model = Model::create(demo_config(), {}, cpu::reference_backend());
  const auto is_absorbed = [&](int64_t num_tokens, int64_t kv_begin) {
    return model->attention_form(num_tokens, kv_begin) == AttentionForm::kAbsorbed;
  };
  EXPECT_TRUE(is_absorbed(1, 0));
  EXPECT_TRUE(is_absorbed(1, 100000));
  EXPECT_TRUE(is_absorbed(5, 1000));  // verification
  EXPECT_TRUE(is_absorbed(64, 1000));
  EXPECT_FALSE(is_absorbed(65, 100000));  // a tree mask has 64 bits
  EXPECT_FALSE(is_absorbed(2, 0));        // a prompt
  EXPECT_FALSE(is_absorbed(512, 0));
  EXPECT_FALSE(is_absorbed(60, 4));
  const auto forced = Model::create(demo_config(), {.attention_form = AttentionForm::kAbsorbed},
                                    cpu::reference_backend());
  EXPECT_EQ(forced->attention_form(500, 0), AttentionForm::kAbsorbed);
}

TEST(Model, refuses_to_start_without_an_operator_and_names_it) {
  ops::Backend backend = cpu::reference_backend();
  backend.moe_experts = {};
  EXPECT_THAT(startup_error(demo_config(), backend), HasSubstr("moe_experts"));
  config::ModelConfig dense = demo_config();
  dense.n_routed_experts = 0;
  EXPECT_THAT(startup_error(dense, backend), IsEmpty());
}

TEST(Model, refuses_to_start_without_memory_and_says_how_much_it_needs) {
  ops::Backend backend = cpu::reference_backend();
  backend.allocate = [](int64_t) -> void* { return nullptr; };
  const auto model = Model::create(demo_config(), {}, cpu::reference_backend());
  EXPECT_THAT(startup_error(demo_config(), backend),
              HasSubstr("the model's weights: " + std::to_string(model->weight_bytes())));
  EXPECT_THROW(KvStorage::allocate(model->kv_groups()[0], 10, backend), StartupError);
  EXPECT_THROW(KvStorage::allocate(model->kv_groups()[0], 0, cpu::reference_backend()),
               StartupError);
}

}  // namespace
}  // namespace fathom::model
