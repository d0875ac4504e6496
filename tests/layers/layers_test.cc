#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "layers/decoder_layer.h"
#include "layers/ffn.h"
#include "layers/moe.h"
#include "layers/mtp_layer.h"
#include "layers/rms_norm.h"
#include "ops/linear.h"
#include "ops/silu_mul.h"
#include "tests/layers/layer_fixture.h"

namespace fathom::layers {
namespace {

using tensor::DType;
using tensor::Tensor;
using testing::Each;
using testing::Truly;

constexpr WeightTypes kFp8 = {.plain = DType::kF32, .fp8 = true};
constexpr WeightTypes kPlain = {.plain = DType::kF32, .fp8 = false};

TEST(WeightBuilder, stacks_matrices_that_load_on_their_own) {
  LayerFixture fixture(small_config(), kFp8);
  const ops::Weight stacked = fixture.builder().stacked({"a.weight", "b.weight"}, 160, 192);
  EXPECT_EQ(stacked.data.describe(), "f8_e4m3[2, 160, 192]");
  EXPECT_EQ(stacked.scale.describe(), "f32[2, 2, 2]");
  ASSERT_EQ(fixture.parameters().size(), 2u);
  const weights::Parameter& b = fixture.parameters()[1];
  EXPECT_EQ(b.name, "b.weight");
  EXPECT_EQ(b.data.data(), stacked.data[1].data());
  EXPECT_EQ(b.data.describe(), "f8_e4m3[160, 192]");
  EXPECT_EQ(b.scale.data(), stacked.scale[1].data());
}

TEST(WeightBuilder, names_every_tensor_of_a_layer_as_the_checkpoint_does) {
  const config::ModelConfig config = small_config();
  LayerFixture fixture(config, kFp8);
  const DecoderLayer dense(0, config, fixture.builder());
  EXPECT_EQ(fixture.parameters().size(), 12u);  // 4 norms, 5 of attention, 3 of the FFN
  const DecoderLayer moe(1, config, fixture.builder());
  std::map<std::string, std::string> shapes;
  for (const weights::Parameter& p : fixture.parameters()) shapes[p.name] = p.data.describe();
  EXPECT_EQ(shapes.size(), 12u + 9u + 2u + 3u + 3u * 8u);
  EXPECT_EQ(shapes["model.layers.0.mlp.down_proj.weight"], "f8_e4m3[192, 160]");
  EXPECT_EQ(shapes["model.layers.0.self_attn.q_b_proj.weight"], "f8_e4m3[96, 96]");
  EXPECT_EQ(shapes["model.layers.0.self_attn.kv_a_proj_with_mqa.weight"], "f8_e4m3[144, 192]");
  EXPECT_EQ(shapes["model.layers.0.self_attn.kv_b_proj.weight"], "f32[128, 128]");
  EXPECT_EQ(shapes["model.layers.1.mlp.shared_experts.up_proj.weight"], "f8_e4m3[144, 192]");
  EXPECT_EQ(shapes["model.layers.1.mlp.experts.7.down_proj.weight"], "f8_e4m3[192, 72]");
  EXPECT_EQ(shapes["model.layers.1.mlp.gate.weight"], "f32[8, 192]");
}

class FfnTest : public testing::TestWithParam<int64_t> {};

// In FP8 a width that is no multiple of 128 leaves partial scale blocks between gate and up.
TEST_P(FfnTest, equals_its_three_products_for_whole_and_partial_scale_blocks) {
  for (const WeightTypes& types : {kFp8, kPlain}) {
    config::ModelConfig config = small_config();
    const int64_t hidden_size = config.hidden_size, inter = GetParam(), tokens = 3;
    config.intermediate_size = static_cast<int>(inter);
    LayerFixture fixture(config, types);
    const Ffn ffn("mlp.", {.hidden_size = hidden_size, .intermediate_size = inter},
                  fixture.builder());
    fixture.fill();
    const Tensor x = fixture.values(tokens, hidden_size), out = fixture.values(tokens, hidden_size);
    ffn.forward({.values = x, .quantised = {}}, fixture.step(tokens), out);

    const auto weight = [&](size_t i) {
      return ops::Weight{.data = fixture.parameters()[i].data,
                         .scale = fixture.parameters()[i].scale};
    };
    ASSERT_EQ(fixture.parameters()[0].name, "mlp.gate_proj.weight");
    const Tensor gate_up = fixture.values(tokens, 2 * inter).reshape({tokens, 2, inter});
    const Tensor rows = gate_up.reshape({tokens, 2 * inter});
    const Tensor gated = fixture.values(tokens, inter);
    const Tensor expected = fixture.values(tokens, hidden_size);
    ops::linear({.x = x, .weight = weight(0), .out = rows.slice(1, 0, inter)}, fixture.stream());
    ops::linear({.x = x, .weight = weight(1), .out = rows.slice(1, inter, 2 * inter)},
                fixture.stream());
    ops::silu_mul({.gate_up = gate_up, .out = gated}, fixture.stream());
    ops::linear({.x = gated, .weight = weight(2), .out = expected}, fixture.stream());
    EXPECT_EQ(to_vector(out), to_vector(expected)) << (types.fp8 ? "fp8" : "f32");
    EXPECT_THAT(to_vector(out), Each(Truly([](float v) { return std::isfinite(v); })));
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, FfnTest, testing::Values(128, 160, 256, 1),
                         [](const auto& info) { return "width_" + std::to_string(info.param); });

TEST(Moe, adds_routed_experts_to_the_shared_ones_and_overwrites_the_output) {
  const int64_t tokens = 5;
  std::vector<float> routed, both, shared;
  for (const int n_shared_experts : {0, 2}) {
    config::ModelConfig config = small_config();
    config.n_shared_experts = n_shared_experts;
    LayerFixture fixture(config, kPlain);
    const Moe moe("mlp.", config, fixture.builder());
    fixture.fill();
    const Tensor x = fixture.values(tokens, config.hidden_size);
    const Tensor out = fixture.values(tokens, config.hidden_size);
    std::fill_n(out.as<float>(), out.num_elements(), std::numeric_limits<float>::quiet_NaN());
    run_layer(moe, fixture, x, out);
    (n_shared_experts == 0 ? routed : both) = to_vector(out);
    if (n_shared_experts == 0) continue;
    // The shared experts alone: the same weights as one FFN of twice the width.
    LayerFixture alone(config, kPlain);
    const Ffn ffn("mlp.shared_experts.", {.hidden_size = 192, .intermediate_size = 144},
                  alone.builder());
    for (const weights::Parameter& p : alone.parameters()) {
      for (const weights::Parameter& q : fixture.parameters()) {
        if (p.name != q.name) continue;
        std::copy_n(q.data.as<float>(), q.data.num_elements(), p.data.as<float>());
      }
    }
    ffn.forward({.values = x, .quantised = {}}, alone.step(tokens), out);
    shared = to_vector(out);
  }
  ASSERT_EQ(both.size(), routed.size());
  for (size_t i = 0; i < both.size(); ++i) {
    EXPECT_NEAR(both[i], routed[i] + shared[i], 1e-6) << i;
    EXPECT_NE(routed[i], 0.0f);
  }
}

// A table without fused operators.
ops::Backend parts_only() {
  ops::Backend backend = cpu::reference_backend();
  backend.rms_norm_quantize = {};
  backend.silu_mul_quantize = {};
  backend.linear_pair = {};
  backend.moe_experts_shared = {};
  return backend;
}

TEST(FusedOps, are_those_that_the_backend_has_for_the_types_of_the_model) {
  const FusedOps all = FusedOps::of(cpu::reference_backend(), kFp8);
  EXPECT_TRUE(all.rms_norm_quantize && all.silu_mul_quantize && all.linear_pair &&
              all.moe_experts_shared);
  const FusedOps plain = FusedOps::of(cpu::reference_backend(), kPlain);
  EXPECT_FALSE(plain.rms_norm_quantize || plain.silu_mul_quantize);
  EXPECT_TRUE(plain.linear_pair && plain.moe_experts_shared);
  const FusedOps none = FusedOps::of(parts_only(), kFp8);
  EXPECT_FALSE(none.rms_norm_quantize || none.silu_mul_quantize || none.linear_pair ||
               none.moe_experts_shared || none.mla_plan);
}

TEST(Moe, gives_the_same_bits_fused_and_in_parts_and_runs_what_it_says) {
  const config::ModelConfig config = small_config();
  const int64_t tokens = 5;
  for (const WeightTypes& types : {kFp8, kPlain}) {
    std::vector<std::vector<float>> outputs;
    for (const bool fused : {true, false}) {
      LayerFixture fixture(config, types, fused ? cpu::reference_backend() : parts_only());
      const Moe moe("mlp.", config, fixture.builder());
      fixture.fill();
      const Tensor x = fixture.values(tokens, config.hidden_size);
      const Tensor out = fixture.values(tokens, config.hidden_size);
      std::vector<ops::OperatorCall> calls;
      fixture.stream().record_operators(&calls);
      run_layer(moe, fixture, x, out);
      fixture.stream().record_operators(nullptr);
      const DType matrix = types.matrix();
      EXPECT_EQ(calls.size(), fused ? 2u : types.fp8 ? 6u : 5u);
      EXPECT_EQ(calls.back(),
                (ops::OperatorCall{fused ? "moe_experts_shared" : "moe_experts", matrix}));
      outputs.push_back(to_vector(out));
    }
    EXPECT_EQ(outputs[0], outputs[1]) << (types.fp8 ? "fp8" : "f32");
  }
}

// Which rows of which sequences a call takes.
TEST(AttentionPlan, cuts_rows_at_multiples_of_the_chunk_and_fills_calls_with_several_sequences) {
  LayerFixture fixture(small_config(), kPlain);
  ForwardBatch batch;
  batch.num_absorbed_tokens = 3;
  batch.expanded = {{.token_begin = 3, .num_tokens = 5, .kv_begin = 0, .sequence_idx = 3},
                    {.token_begin = 8, .num_tokens = 20, .kv_begin = 30, .sequence_idx = 4},
                    {.token_begin = 28, .num_tokens = 7, .kv_begin = 0, .sequence_idx = 5}};
  const AttentionPlan plan =
      plan_attention(batch, {.heads = 2, .chunk_rows = 16, .plan_buffer = {}}, fixture.stream());
  std::vector<std::string> calls;
  for (const std::vector<ops::ExpandedSegment>& call : plan.expanded_calls) {
    std::string text;
    for (const ops::ExpandedSegment& s : call)
      text += std::to_string(s.sequence_idx) + ":" + std::to_string(s.row_begin) + "+" +
              std::to_string(s.num_rows) + "@" + std::to_string(s.buffer_begin) +
              (s.first ? " first" : "") + (s.last ? " last; " : "; ");
    calls.push_back(text);
  }
  EXPECT_THAT(calls, testing::ElementsAre("3:0+5@0 first last; ", "4:0+16@0 first; ", "4:16+16@0; ",
                                          "4:32+16@0; ", "4:48+2@0 last; 5:0+7@2 first last; "));
  EXPECT_TRUE(plan.absorbed.is_null());
}

// Which prompts' lists are of a copy of their rows: those with tokens enough that fit.
TEST(AttentionPlan, copies_the_rows_of_prompts_that_have_tokens_enough) {
  LayerFixture fixture(small_config(), kPlain);
  ForwardBatch batch;
  batch.num_absorbed_tokens = 3;
  batch.expanded = {{.token_begin = 3, .num_tokens = 50, .kv_begin = 0, .sequence_idx = 3},
                    {.token_begin = 53, .num_tokens = 1, .kv_begin = 1023, .sequence_idx = 4},
                    {.token_begin = 54, .num_tokens = 1, .kv_begin = 1024, .sequence_idx = 5},
                    {.token_begin = 55, .num_tokens = 200, .kv_begin = 2000, .sequence_idx = 6},
                    {.token_begin = 255, .num_tokens = 128, .kv_begin = 10, .sequence_idx = 7},
                    {.token_begin = 383, .num_tokens = 8, .kv_begin = 0, .sequence_idx = 8}};
  const auto lists_of = [&](int64_t heads, int64_t room) {
    const AttentionPlan plan = plan_attention(
        batch, {.heads = heads, .chunk_rows = 16, .plan_buffer = {}, .topk = 10, .copy_rows = room},
        fixture.stream());
    std::vector<std::string> lists;
    for (const ListedTokens& listed : plan.listed) {
      lists.push_back(std::to_string(listed.tokens.begin));
      if (listed.num_copied > 0)
        lists.back() +=
            ": " + std::to_string(listed.num_copied) + " of " + std::to_string(listed.sequence_idx);
    }
    return lists;
  };
  using testing::ElementsAre;
  EXPECT_THAT(lists_of(17, 5000), ElementsAre("0", "13: 50 of 3", "53: 1024 of 4", "54",
                                              "55: 2200 of 6", "255: 138 of 7"));
  EXPECT_THAT(lists_of(17, 2199),
              ElementsAre("0", "13: 50 of 3", "53: 1024 of 4", "54", "55", "255: 138 of 7"));
  EXPECT_THAT(lists_of(16, 5000), ElementsAre("0", "13", "53", "54", "55: 2200 of 6", "255"));
  EXPECT_THAT(lists_of(17, 0), ElementsAre("0", "13", "53", "54", "55", "255"));
}

// Which tokens of a prompt attend by bits: those behind its first topk rows that see few enough, where the slice has
// enough of them for its rows.
TEST(AttentionPlan, gives_bits_to_tokens_that_see_few_rows) {
  LayerFixture fixture(small_config(), kPlain);
  ForwardBatch batch;
  batch.num_absorbed_tokens = 3;
  batch.expanded = {{.token_begin = 3, .num_tokens = 50, .kv_begin = 0, .sequence_idx = 3},
                    {.token_begin = 53, .num_tokens = 8, .kv_begin = 0, .sequence_idx = 4},
                    {.token_begin = 61, .num_tokens = 5, .kv_begin = 25, .sequence_idx = 5},
                    {.token_begin = 66, .num_tokens = 6, .kv_begin = 25, .sequence_idx = 6},
                    {.token_begin = 72,
                     .num_tokens = 20,
                     .kv_begin = 0,
                     .sequence_idx = 7,
                     .has_tree_mask = true}};
  const AttentionPlan plan = plan_attention(batch,
                                            {.heads = 16,
                                             .chunk_rows = 16,
                                             .plan_buffer = {},
                                             .topk = 10,
                                             .bits_rows = 40,
                                             .rows_of_bits_token = 5},
                                            fixture.stream());
  std::vector<std::string> lists;
  for (const ListedTokens& listed : plan.listed)
    lists.push_back(std::to_string(listed.tokens.begin) + " to " +
                    std::to_string(listed.tokens.end) + (listed.by_bits ? " by bits" : ""));
  EXPECT_THAT(lists, testing::ElementsAre("0 to 3", "13 to 43 by bits", "43 to 53", "61 to 66",
                                          "66 to 72 by bits", "82 to 92"));
  EXPECT_TRUE(plan.has_bits);
  std::vector<std::string> segments;
  for (const auto& call : plan.expanded_calls)
    for (const ops::ExpandedSegment& segment : call)
      segments.push_back(std::to_string(segment.sequence_idx) + ": " +
                         std::to_string(segment.num_tokens) + " tokens, rows from " +
                         std::to_string(segment.row_begin));
  EXPECT_THAT(segments,
              testing::ElementsAre("3: 40 tokens, rows from 0", "3: 40 tokens, rows from 16",
                                   "3: 40 tokens, rows from 32", "4: 8 tokens, rows from 0",
                                   "6: 6 tokens, rows from 0", "6: 6 tokens, rows from 16",
                                   "7: 10 tokens, rows from 0"));
}

TEST(ResidualStream, adds_each_branch_once) {
  LayerFixture fixture(small_config(), kPlain);
  const RmsNorm norm{.weight = fixture.builder().norm("norm.weight", 4), .eps = 0.0f};
  fixture.fill();
  const Tensor residual = fixture.values(1, 4), branch = fixture.values(1, 4);
  const Tensor out = fixture.values(1, 4);
  for (int i = 0; i < 4; ++i) {
    residual.as<float>()[i] = 1.0f;
    branch.as<float>()[i] = static_cast<float>(i);
  }
  ResidualStream residual_stream(residual, branch);
  residual_stream.normalise(norm, {.values = out, .quantised = {}}, fixture.stream());
  EXPECT_THAT(to_vector(out), testing::ElementsAre(1, 1, 1, 1));
  residual_stream.set_pending(comm::alone());
  residual_stream.normalise(norm, {.values = out, .quantised = {}}, fixture.stream());
  EXPECT_THAT(to_vector(residual), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_FALSE(residual_stream.is_pending());
  residual_stream.normalise(norm, {.values = out, .quantised = {}}, fixture.stream());
  EXPECT_THAT(to_vector(residual), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_NEAR(to_vector(out)[3], 4 / std::sqrt(7.5), 1e-6);
}

struct Range {
  const char* begin;
  const char* end;
};

Range range_of(const Tensor& t) {
  const auto* begin = static_cast<const char*>(t.data());
  return {begin, begin + t.num_bytes()};
}

void expect_disjoint(const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Range a = range_of(tensors[i]), b = range_of(tensors[j]);
      EXPECT_TRUE(a.end <= b.begin || b.end <= a.begin) << "buffers " << j << " and " << i;
    }
  }
}

TEST(StepBuffers, share_memory_only_between_phases_that_do_not_overlap) {
  const config::ModelConfig config = small_config();
  LayerFixture fixture(config, kPlain);
  const StepBuffers b = fixture.step(LayerFixture::kMaxTokens).buffers;
  const std::vector<Tensor> whole_step = {b.rope_table, b.residual,  b.branch,    b.normed,
                                          b.hidden,     b.mtp_input, b.mtp_hidden};
  const auto live_with = [&](std::vector<Tensor> phase) {
    phase.insert(phase.end(), whole_step.begin(), whole_step.end());
    expect_disjoint(phase);
  };
  const MlaBuffers& mla = b.mla;
  live_with({mla.q_a, mla.q, mla.kv_a, mla.out, mla.q_latent, mla.out_latent});
  live_with({mla.q_a, mla.q, mla.kv_a, mla.out, mla.latent, mla.k_rope, mla.kv, mla.state_max,
             mla.state_sum, mla.state_acc});
  live_with({b.ffn.gate_up, b.ffn.gated, b.ffn.routed.ids, b.ffn.routed.weights});
  EXPECT_EQ(fixture.step(3).buffers.mla.q.describe(), "f32[3, 2, 48]");
}

}  // namespace
}  // namespace fathom::layers
