// A model of several ranks: what each holds of published shapes, every rank's part of the demo checkpoint put together
// again, and ranks as threads that give the logits and tokens of one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>

#include "base/startup_error.h"
#include "comm/thread_ranks.h"
#include "layers/row_shares.h"
#include "model/network.h"
#include "tests/comm/place.h"
#include "tests/model/backends.h"
#include "tests/model/golden.h"
#include "tests/model/step_harness.h"
#include "tests/source_tree.h"
#include "weights/loader.h"

namespace fathom::model {
namespace {

using comm::Place;
using comm::RankContext;
using tensor::DType;
using tensor::Tensor;
using testing::HasSubstr;

const std::string kSplitModel = source_path("models/demo");
constexpr ModelOptions kRankOptions = {.dequantize = true, .weight_dtype = DType::kF32};

// DeepSeek-V3 in FP8 with its MTP layer, as one rank has it. Memory is only counted.
std::map<std::string, weights::Parameter> v3_part(const RankContext& rank) {
  const auto config =
      value_or_throw(config::load_model_config(source_path("models/configs/deepseek-v3")));
  tensor::Arena nowhere;
  std::vector<weights::Parameter> parameters;
  layers::WeightBuilder builder(nowhere, {.plain = DType::kBf16, .fp8 = true},
                                cpu::reference_backend(), parameters, rank);
  const Network network(config, true, builder);
  std::map<std::string, weights::Parameter> by_name;
  for (const weights::Parameter& parameter : parameters) by_name[parameter.name] = parameter;
  return by_name;
}

TEST(V3Ranks, hold_equal_parts_of_heads_widths_and_vocabulary) {
  const auto whole = v3_part({});
  const std::string layer = "model.layers.3.", dense = "model.layers.0.mlp.";
  for (const int size : {2, 4, 8}) {
    Place tp(size - 1, size);
    const auto part = v3_part({.tp = &tp});
    const auto shape = [&](const std::string& name) {
      const weights::Parameter& p = part.at(name);
      EXPECT_EQ(whole_shape(p), whole_shape(whole.at(name))) << name;
      return std::vector<int64_t>{p.data.dim(0), p.data.dim(1)};
    };
    using Shape = std::vector<int64_t>;
    EXPECT_EQ(shape(layer + "self_attn.q_b_proj.weight"), (Shape{128 / size * 192, 1536}));
    EXPECT_EQ(shape(layer + "self_attn.kv_b_proj.weight"), (Shape{128 / size * 256, 512}));
    EXPECT_EQ(shape(layer + "self_attn.o_proj.weight"), (Shape{7168, 128 / size * 128}));
    EXPECT_EQ(shape(layer + "self_attn.q_a_proj.weight"), (Shape{1536, 7168}));
    EXPECT_EQ(shape(layer + "mlp.experts.255.up_proj.weight"), (Shape{2048 / size, 7168}));
    EXPECT_EQ(shape(layer + "mlp.experts.0.down_proj.weight"), (Shape{7168, 2048 / size}));
    EXPECT_EQ(shape(layer + "mlp.shared_experts.gate_proj.weight"), (Shape{2048 / size, 7168}));
    EXPECT_EQ(shape(layer + "mlp.gate.weight"), (Shape{256, 7168}));
    EXPECT_EQ(shape(dense + "gate_proj.weight"), (Shape{18432 / size, 7168}));
    EXPECT_EQ(shape(dense + "down_proj.weight"), (Shape{7168, 18432 / size}));
    EXPECT_EQ(shape("lm_head.weight"), (Shape{129280 / size, 7168}));
    EXPECT_EQ(shape("model.embed_tokens.weight"), (Shape{129280 / size, 7168}));
    EXPECT_EQ(part.at(layer + "mlp.experts.0.down_proj.weight").scale.dim(1), 16 / size);
  }
}

TEST(V3Ranks, hold_whole_experts_where_there_is_expert_parallelism) {
  for (const int size : {2, 4, 8}) {
    Place tp(1, size), ep(1, size);
    int held = 0, elsewhere = 0;
    for (const auto& [name, p] : v3_part({.tp = &tp, .ep = &ep})) {
      if (!name.starts_with("model.layers.3.mlp.experts.") || !name.ends_with("down_proj.weight"))
        continue;
      ++(p.held_elsewhere ? elsewhere : held);
      if (!p.held_elsewhere) {
        EXPECT_EQ(p.data.describe(), "f8_e4m3[7168, 2048]");
      }
    }
    EXPECT_EQ(held, 256 / size);
    EXPECT_EQ(elsewhere, 256 - 256 / size);
  }
}

std::string v3_refusal(int size) {
  Place tp(0, size);
  try {
    v3_part({.tp = &tp});
  } catch (const StartupError& error) {
    return error.what();
  }
  return "";
}

TEST(V3Ranks, are_refused_where_they_cannot_share) {
  EXPECT_EQ(v3_refusal(1), "");
  EXPECT_THAT(v3_refusal(3), HasSubstr("model.embed_tokens.weight: dimension 0 is 129280, which "
                                       "does not divide among 3 ranks"));
  EXPECT_THAT(v3_refusal(5), HasSubstr("q_b_proj.weight: dimension 0 is 24576, which does not "
                                       "divide among 5 ranks in multiples of 192"));
  // Parts of 576 rows, which are four blocks and a half.
  EXPECT_THAT(
      v3_refusal(32),
      HasSubstr("model.layers.0.mlp.gate_proj.weight: dimension 0 is 18432, of which each "
                "of 32 ranks would hold 576, but parts with block scales are multiples of 128"));
}

TEST(Ranks, that_do_not_fit_together_are_refused) {
  const auto config = value_or_throw(config::load_model_config(kSplitModel));
  const auto refusal = [&](const RankContext& rank) -> std::string {
    try {
      Model::create(config, kRankOptions, cpu::reference_backend(), rank);
    } catch (const StartupError& error) {
      return error.what();
    }
    return "";
  };
  Place two(0, 2), four(0, 4);
  EXPECT_THAT(refusal({.tp = &two, .ep = &four}), HasSubstr("expert parallelism of 4 ranks"));
  EXPECT_THAT(refusal({.dp = &two, .ep = &four}), HasSubstr("needs all 2 ranks of the model"));
  EXPECT_EQ(refusal({.dp = &two, .ep = &two}), "");
  // Its experts are one block of scales wide, of which each rank has a part; a head's 192 rows are one and a half.
  Place eight(0, 8);
  EXPECT_NO_THROW(Model::create(config, {}, cpu::reference_backend(), {.tp = &four}));
  EXPECT_THROW(Model::create(config, {}, cpu::reference_backend(), {.tp = &eight}), StartupError);
}

// The whole's elements that a part must equal. unit: entries of the matrix that one of these stands for.
Tensor part_of(const Tensor& whole, const Tensor& part, const weights::Parameter& p,
               int64_t unit = 1) {
  const int axis = p.shard.axis;
  if (part.dim(axis) == whole.dim(axis)) return whole;
  const int64_t begin = p.shard.rank * p.data.dim(axis) / unit;
  return whole.slice(axis, begin, begin + part.dim(axis));
}

bool equal(const Tensor& a, const Tensor& b) {
  const int64_t element = tensor::dtype_bytes(a.dtype());
  const int64_t rows = a.rank() == 1 ? 1 : a.dim(0), columns = a.dim(a.rank() - 1);
  const auto row_of = [&](const Tensor& t, int64_t row) {
    return static_cast<const char*>(t.data()) + (t.rank() == 1 ? 0 : row * t.stride(0) * element);
  };
  for (int64_t row = 0; row < rows; ++row)
    if (std::memcmp(row_of(a, row), row_of(b, row), static_cast<size_t>(columns * element)) != 0)
      return false;
  return true;
}

// Every element of the whole is compared as often as ranks hold it; how many do is returned, in elements.
int64_t compare_part(const Model& whole, const Model& part) {
  std::map<std::string, weights::Parameter> expected;
  for (const weights::Parameter& p : whole.parameters()) expected[p.name] = p;
  int64_t elements = 0;
  for (const weights::Parameter& p : part.parameters()) {
    const weights::Parameter& e = expected.at(p.name);
    if (p.held_elsewhere) continue;
    EXPECT_EQ(whole_shape(p), whole_shape(e)) << p.name;
    EXPECT_TRUE(equal(p.data, part_of(e.data, p.data, p))) << p.name;
    if (!p.scale.is_null()) {
      EXPECT_TRUE(equal(p.scale, part_of(e.scale, p.scale, p, tensor::kScaleBlock))) << p.name;
    }
    // What every rank has counts once.
    const bool shared = p.shard.is_whole() && p.name.find(".experts.") == std::string::npos;
    if (!shared || (part.rank().tp->rank() == 0)) elements += p.data.num_elements();
  }
  return elements;
}

int64_t num_elements(const Model& model) {
  int64_t elements = 0;
  for (const weights::Parameter& p : model.parameters()) elements += p.data.num_elements();
  return elements;
}

struct PartsCase {
  const char* name;
  ModelOptions options;
  int size;
  bool by_experts;
};

class DemoParts : public testing::TestWithParam<PartsCase> {};

TEST_P(DemoParts, of_all_ranks_are_the_checkpoint) {
  const PartsCase& c = GetParam();
  const LoadedModel whole(kSplitModel, c.options, cpu::fast_backend());
  int64_t elements = 0;
  for (int i = 0; i < c.size; ++i) {
    Place tp(i, c.size), ep(i, c.size);
    RankContext rank{.tp = &tp};
    if (c.by_experts) rank.ep = &ep;
    const LoadedModel part(kSplitModel, c.options, cpu::fast_backend(), "", rank);
    EXPECT_LT(part.model().weight_bytes(), whole.model().weight_bytes());
    elements += compare_part(whole.model(), part.model());
  }
  EXPECT_EQ(elements, num_elements(whole.model()));
}

INSTANTIATE_TEST_SUITE_P(Ranks, DemoParts,
                         testing::Values(PartsCase{"f32_2", kRankOptions, 2, false},
                                         PartsCase{"f32_4", kRankOptions, 4, false},
                                         PartsCase{"f32_8", kRankOptions, 8, false},
                                         PartsCase{"f32_4_experts", kRankOptions, 4, true},
                                         PartsCase{"bf16_8_experts", {.dequantize = true}, 8, true},
                                         PartsCase{"f8_2", {}, 2, false},
                                         PartsCase{"f8_4", {}, 4, false},
                                         PartsCase{"f8_4_experts", {}, 4, true}),
                         [](const testing::TestParamInfo<PartsCase>& info) {
                           return info.param.name;
                         });

// A small checkpoint's worth of FP8 with scales: random weights of a model whose sizes are blocks.
TEST(Fp8Parts, of_all_ranks_are_the_whole) {
  config::ModelConfig config = value_or_throw(config::load_model_config(kSplitModel));
  config.num_attention_heads = 16;
  config.moe_intermediate_size = 1024;
  config.intermediate_size = 2048;
  config.num_hidden_layers = 2;
  const auto filled = [&](const RankContext& rank) {
    auto model = Model::create(config, {}, cpu::fast_backend(), rank);
    throw_on_error(weights::fill_dummy(model->parameters(), {.num_threads = 2}));
    return model;
  };
  const auto whole = filled({});
  for (const int size : {2, 4, 8}) {
    int64_t elements = 0;
    for (int i = 0; i < size; ++i) {
      Place tp(i, size);
      elements += compare_part(*whole, *filled({.tp = &tp}));
    }
    EXPECT_EQ(elements, num_elements(*whole)) << size;
  }
}

struct Answer {
  std::vector<std::vector<float>> logits, mtp_logits;  // of the prompt
  std::vector<int32_t> tokens;                         // greedy, after it
};

Answer answer_of(const LoadedModel& loaded, const std::vector<int32_t>& prompt) {
  StepHarness harness(loaded, {.num_blocks = 16, .wants_mtp = true});
  Slice slice{.sequence = harness.add_sequence(), .tokens = prompt};
  slice.next_tokens.assign(prompt.begin() + 1, prompt.end());
  slice.next_tokens.push_back(7);
  SliceOutput out = harness.step({slice})[0];
  StepHarness decoder(loaded, {.num_blocks = 16});
  return {.logits = std::move(out.logits),
          .mtp_logits = std::move(out.mtp_logits),
          .tokens = decoder.generate(prompt, 12, 16)};
}

// Answers of all ranks, each in its thread.
std::vector<Answer> answers_of(int size, bool by_experts, const std::vector<int32_t>& prompt) {
  comm::ThreadRanks tp("tp", size), ep("ep", size);
  std::vector<Answer> answers(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i)
    threads.emplace_back([&, i] {
      RankContext rank{.tp = &tp.of(i)};
      if (by_experts) rank.ep = &ep.of(i);
      const LoadedModel loaded(kSplitModel, kRankOptions, cpu::fast_backend(), "", rank);
      answers[static_cast<size_t>(i)] = answer_of(loaded, prompt);
    });
  for (std::thread& thread : threads) thread.join();
  return answers;
}

// Absorbed and expanded attention, dense and MoE layers, the MTP layer, embedding and head.
TEST(DemoRanks, as_threads_give_the_logits_and_tokens_of_one) {
  const json::Value golden = read_json(source_path("tests/data/demo/golden.json"));
  const auto prompt = golden[0]["prompt_ids"].get<std::vector<int32_t>>();
  const Answer alone =
      answer_of(LoadedModel(kSplitModel, kRankOptions, cpu::fast_backend()), prompt);
  for (const int size : {2, 4, 8})
    for (const bool by_experts : {false, true}) {
      if (kIsSanitized && size > 2) continue;
      const std::vector<Answer> answers = answers_of(size, by_experts, prompt);
      for (const Answer& answer : answers) {
        EXPECT_EQ(answer.tokens, alone.tokens) << size << " ranks";
        for (size_t i = 0; i < prompt.size(); ++i) {
          ASSERT_LE(max_abs_difference(answer.logits[i], alone.logits[i]), 1e-3) << size;
          ASSERT_LE(max_abs_difference(answer.mtp_logits[i], alone.mtp_logits[i]), 1e-3) << size;
        }
        // To the bit the same on every rank, so that all sample the same token.
        EXPECT_EQ(answer.logits, answers[0].logits);
      }
    }
}

// A member of a group that counts how often its rows are summed for one rank each.
class CountingMember : public comm::Communicator {
 public:
  explicit CountingMember(Communicator& member) : member_(member) {}
  int rank() const override { return member_.rank(); }
  int size() const override { return member_.size(); }
  void all_reduce(const Tensor& t, ops::Stream& stream) override { member_.all_reduce(t, stream); }
  void all_gather(const Tensor& whole, int axis, ops::Stream& stream) override {
    member_.all_gather(whole, axis, stream);
  }
  void all_gather_rows(const Tensor& whole, std::span<const int64_t> starts,
                       ops::Stream& stream) override {
    member_.all_gather_rows(whole, starts, stream);
  }
  void reduce_scatter_rows(const Tensor& whole, std::span<const int64_t> starts,
                           ops::Stream& stream) override {
    ++num_shared_sums;
    member_.reduce_scatter_rows(whole, starts, stream);
  }
  void barrier() override { member_.barrier(); }

  int num_shared_sums = 0;

 private:
  Communicator& member_;
};

// A prompt and the token behind it, with all rows on every rank where a tap reads them.
std::vector<SliceOutput> prompt_and_token(const LoadedModel& loaded, int64_t tokens,
                                          LayerTap* tap) {
  StepHarness harness(loaded, {.max_batch_tokens = tokens, .num_blocks = 24});
  Slice slice{.sequence = harness.add_sequence()};
  for (int64_t i = 0; i < tokens; ++i) slice.tokens.push_back(static_cast<int32_t>(100 + i % 97));
  std::vector<SliceOutput> outputs = {harness.step({slice}, tap)[0]};
  slice.tokens = {7};
  outputs.push_back(harness.step({slice})[0]);
  return outputs;
}

// In FP8, where what is gathered is quantised; with rows that do not divide evenly.
TEST(DemoRanks, share_the_rows_of_a_large_step_to_the_bits_of_all_rows) {
  if (kIsSanitized) GTEST_SKIP() << "the reference's operators need minutes under a sanitizer";
  constexpr int64_t kRows = layers::RowShares::kLeastRows + 3;
  constexpr int kSize = 2;
  comm::ThreadRanks tp("tp", kSize);
  std::vector<std::thread> threads;
  for (int i = 0; i < kSize; ++i)
    threads.emplace_back([&, i] {
      CountingMember member(tp.of(i));
      const LoadedModel loaded(kSplitModel, {}, cpu::reference_backend(), "", {.tp = &member});
      const int sums = 2 * loaded.model().config().num_hidden_layers;
      const std::vector<SliceOutput> shared = prompt_and_token(loaded, kRows, nullptr);
      EXPECT_EQ(member.num_shared_sums, sums);
      LastTokenTap tap;
      const std::vector<SliceOutput> whole = prompt_and_token(loaded, kRows, &tap);
      EXPECT_EQ(member.num_shared_sums, sums);
      for (size_t step = 0; step < whole.size(); ++step) {
        EXPECT_EQ(shared[step].hidden, whole[step].hidden) << "step " << step;
        EXPECT_EQ(shared[step].logits, whole[step].logits) << "step " << step;
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace fathom::model
