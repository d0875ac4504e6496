// Layers of several ranks: what each holds and adds, and that it is summed where the residual stream is normalised.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/startup_error.h"
#include "layers/decoder_layer.h"
#include "layers/ffn.h"
#include "layers/moe.h"
#include "tests/comm/place.h"
#include "tests/layers/layer_fixture.h"

namespace fathom::layers {
namespace {

using comm::Place;
using comm::RankContext;
using tensor::DType;
using tensor::Tensor;
using testing::HasSubstr;

constexpr WeightTypes kFp8Weights = {.plain = DType::kF32, .fp8 = true};
constexpr WeightTypes kPlainWeights = {.plain = DType::kF32, .fp8 = false};

// Widths of which every part is made of whole blocks of scales.
config::ModelConfig divisible_config() {
  config::ModelConfig config = small_config();
  config.intermediate_size = 1024;
  config.moe_intermediate_size = 512;
  return config;
}

// What a layer gives for the same rows, on one rank.
template <class Layer, class... Args>
std::vector<float> output_of(const WeightTypes& types, const RankContext& rank,
                             const config::ModelConfig& config, const Args&... args) {
  LayerFixture fixture(config, types, cpu::reference_backend(), rank);
  const Layer layer("mlp.", args..., fixture.builder());
  fixture.fill();
  const int64_t tokens = 3;
  const Tensor x = fixture.values(tokens, config.hidden_size);
  const Tensor out = fixture.values(tokens, config.hidden_size);
  run_layer(layer, fixture, x, out);
  return to_vector(out);
}

void expect_sum(const std::vector<std::vector<float>>& parts, const std::vector<float>& whole,
                double tolerance) {
  for (size_t i = 0; i < whole.size(); ++i) {
    double sum = 0;
    for (const std::vector<float>& part : parts) sum += part[i];
    ASSERT_NEAR(sum, whole[i], tolerance) << i;
  }
}

TEST(Ranks, add_up_to_an_ffn) {
  const config::ModelConfig config = divisible_config();
  const FfnShape shape{.hidden_size = config.hidden_size,
                       .intermediate_size = config.intermediate_size};
  for (const WeightTypes& types : {kFp8Weights, kPlainWeights})
    for (const int size : {2, 4, 8}) {
      std::vector<std::vector<float>> parts;
      for (int i = 0; i < size; ++i) {
        Place tp(i, size);
        parts.push_back(output_of<Ffn>(types, {.tp = &tp}, config, shape));
      }
      EXPECT_NE(parts[0], parts[1]);
      expect_sum(parts, output_of<Ffn>(types, {}, config, shape), 1e-5);
    }
}

TEST(Ranks, add_up_to_an_moe_layer_by_width_and_by_experts) {
  const config::ModelConfig config = divisible_config();
  for (const WeightTypes& types : {kFp8Weights, kPlainWeights})
    for (const int size : {2, 4})
      for (const bool by_experts : {false, true}) {
        std::vector<std::vector<float>> parts;
        for (int i = 0; i < size; ++i) {
          Place tp(i, size), ep(i, size);
          RankContext rank{.tp = &tp};
          if (by_experts) rank.ep = &ep;
          parts.push_back(output_of<Moe>(types, rank, config, config));
        }
        expect_sum(parts, output_of<Moe>(types, {}, config, config), 1e-5);
      }
}

TEST(Ranks, hold_whole_experts_and_know_those_of_others) {
  const config::ModelConfig config = divisible_config();
  Place tp(1, 4), ep(1, 4);
  LayerFixture fixture(config, kFp8Weights, cpu::reference_backend(), {.tp = &tp, .ep = &ep});
  const Moe moe("mlp.", config, fixture.builder());
  for (const weights::Parameter& p : fixture.parameters()) {
    const size_t at = p.name.find("experts.");
    if (at == std::string::npos || p.name.find("shared") != std::string::npos) continue;
    const int expert = std::stoi(p.name.substr(at + 8));
    EXPECT_EQ(p.held_elsewhere, expert != 2 && expert != 3) << p.name;
    if (!p.held_elsewhere) {
      EXPECT_TRUE(p.shard.is_whole()) << p.name;
    }
  }
}

TEST(ResidualStream, sums_a_branch_over_its_ranks_before_it_is_normalised) {
  LayerFixture fixture(small_config(), kPlainWeights);
  const RmsNorm norm{.weight = fixture.builder().norm("norm.weight", 4), .eps = 0.0f};
  fixture.fill();
  const Tensor residual = fixture.values(1, 4), branch = fixture.values(1, 4);
  const Tensor out = fixture.values(1, 4);
  Place tp(0, 2);
  ResidualStream residual_stream(residual, branch);
  residual_stream.normalise(norm, {.values = out, .quantised = {}}, fixture.stream());
  EXPECT_EQ(tp.num_all_reduces, 0);  // nothing is in the branch
  residual_stream.set_pending(tp);
  EXPECT_EQ(tp.num_all_reduces, 0);
  residual_stream.normalise(norm, {.values = out, .quantised = {}}, fixture.stream());
  EXPECT_EQ(tp.num_all_reduces, 1);
  EXPECT_EQ(tp.reduced, branch.data());
  residual_stream.normalise(norm, {.values = out, .quantised = {}}, fixture.stream());
  EXPECT_EQ(tp.num_all_reduces, 1);
}

std::string refusal(const config::ModelConfig& config, const WeightTypes& types,
                    const RankContext& rank) {
  LayerFixture fixture(config, types, cpu::reference_backend(), rank);
  try {
    const DecoderLayer layer(1, config, fixture.builder());
  } catch (const StartupError& error) {
    return error.what();
  }
  return "";
}

TEST(Ranks, that_cannot_share_a_layer_are_refused_with_the_parameter) {
  config::ModelConfig config = divisible_config();
  Place four(0, 4), two(0, 2), three(0, 3);
  // Two heads of 48 rows.
  EXPECT_THAT(refusal(config, kPlainWeights, {.tp = &four}),
              HasSubstr("model.layers.1.self_attn.q_b_proj.weight: dimension 0 is 96, which does "
                        "not divide among 4 ranks in multiples of 48"));
  EXPECT_EQ(refusal(config, kPlainWeights, {.tp = &two}), "");
  // In FP8 a cut between heads may be one across blocks.
  EXPECT_THAT(
      refusal(config, kFp8Weights, {.tp = &two}),
      HasSubstr(
          "of which each of 2 ranks would hold 48, but parts with block scales are multiples of "
          "128 or divide it"));
  EXPECT_THAT(refusal(config, kPlainWeights, {.ep = &three}),
              HasSubstr("model.layers.1.mlp.experts: dimension 0 is 8, which does not divide "
                        "among 3 ranks"));
  config.moe_intermediate_size = 72;
  config.num_attention_heads = 16;
  EXPECT_THAT(refusal(config, kFp8Weights, {.tp = &two}),
              HasSubstr("model.layers.1.mlp.experts.0.gate_proj.weight: dimension 0 is 72, of "
                        "which each of 2 ranks would hold 36"));
}

}  // namespace
}  // namespace fathom::layers
