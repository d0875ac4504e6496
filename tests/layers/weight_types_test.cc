// Which matrices of an INT8 model are quantised: all but those in modules that the configuration names.

#include <gtest/gtest.h>

#include "layers/weight_builder.h"

namespace fathom::layers {
namespace {

TEST(WeightTypes, a_module_is_named_by_whole_parts_of_its_path) {
  const std::vector<std::string> modules = {"lm_head", "self_attn.kv_b_proj", "model.layers.1.mlp",
                                            "gate"};
  const WeightTypes types{.int8 = ops::ScaleForm::kChannels, .unquantised = &modules};
  for (const char* left :
       {"lm_head.weight", "model.layers.7.self_attn.kv_b_proj.weight",
        "model.layers.1.mlp.experts.3.up_proj.weight", "model.layers.5.mlp.gate.weight"})
    EXPECT_EQ(types.scale_form(left), ops::ScaleForm::kNone) << left;
  for (const char* quantised :
       {"model.layers.7.self_attn.q_b_proj.weight", "model.layers.11.mlp.down_proj.weight",
        "model.layers.5.mlp.experts.0.gate_proj.weight"})
    EXPECT_EQ(types.scale_form(quantised), ops::ScaleForm::kChannels) << quantised;
}

TEST(WeightTypes, of_w4afp8_are_int4_in_routed_experts_and_fp8_elsewhere) {
  config::ModelConfig config;
  config.quantization_config.emplace().method = config::QuantMethod::kW4AFp8;
  const WeightTypes types = quantised_types(config, false);
  EXPECT_EQ(types.matrix(), tensor::DType::kF8E4M3);
  EXPECT_EQ(types.experts(), tensor::DType::kI4x2);
  EXPECT_EQ(types.scale_form("model.layers.5.mlp.experts.0.gate_proj.weight"),
            ops::ScaleForm::kGroups);
  for (const char* fp8 :
       {"model.layers.5.mlp.shared_experts.up_proj.weight", "model.layers.0.mlp.up_proj.weight",
        "model.layers.5.self_attn.o_proj.weight"})
    EXPECT_EQ(types.scale_form(fp8), ops::ScaleForm::kBlocks) << fp8;
  EXPECT_EQ(quantised_types(config, true).experts(), tensor::DType::kBf16);
}

TEST(WeightTypes, of_awq_have_zero_points_but_in_modules_that_the_config_names) {
  config::ModelConfig config;
  config::QuantizationConfig& quantization = config.quantization_config.emplace();
  quantization = {.method = config::QuantMethod::kAwq,
                  .group_size = 64,
                  .unquantised_modules = {"self_attn.o_proj"}};
  const WeightTypes types = quantised_types(config, false);
  EXPECT_EQ(types.matrix(), tensor::DType::kU4x2);
  EXPECT_EQ(types.experts(), tensor::DType::kU4x2);
  EXPECT_EQ(types.scale_form("model.layers.5.mlp.experts.0.gate_proj.weight"),
            ops::ScaleForm::kZeroPoints);
  EXPECT_EQ(types.scale_form("model.layers.5.self_attn.o_proj.weight"), ops::ScaleForm::kNone);
  EXPECT_EQ(quantised_types(config, true).matrix(), tensor::DType::kBf16);
}

TEST(WeightTypes, are_those_of_the_configuration_unless_it_is_dequantised) {
  config::ModelConfig config;
  EXPECT_EQ(quantised_types(config, false).matrix(), tensor::DType::kBf16);
  config.quantization_config.emplace();
  EXPECT_EQ(quantised_types(config, false).matrix(), tensor::DType::kF8E4M3);
  for (const auto& [method, form] :
       {std::pair{config::QuantMethod::kInt8Blocks, ops::ScaleForm::kBlocks},
        {config::QuantMethod::kInt8Channels, ops::ScaleForm::kChannels}}) {
    config.quantization_config->method = method;
    const WeightTypes types = quantised_types(config, false);
    EXPECT_EQ(types.matrix(), tensor::DType::kI8);
    EXPECT_EQ(types.scale_form("model.layers.0.mlp.up_proj.weight"), form);
    EXPECT_EQ(quantised_types(config, true).matrix(), tensor::DType::kBf16);
  }
}

}  // namespace
}  // namespace fathom::layers
