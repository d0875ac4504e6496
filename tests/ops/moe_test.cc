// moe_gate, moe_experts.

#include <cmath>
#include <functional>
#include <set>
#include <stdexcept>
#include <utility>

#include "ops/moe.h"
#include "tests/ops/device.h"
#include "tests/ref/oracle.h"

namespace fathom::ops_test {
namespace {

using ops::GateKind;

class MoeTest : public OpsTest {
 protected:
  // Uploads, runs, downloads. `rules` carries kind, groups and scaling.
  ref::GateChoice run_gate(const HostTensor& x, const HostTensor& weight, const HostTensor& bias,
                           ops::MoeGateArgs rules, int64_t num_experts_per_tok) {
    const DeviceTensor device_x = upload(x), device_weight = upload(weight);
    const DeviceTensor device_bias = upload(bias);
    const DeviceTensor ids = empty(DType::kI32, {x.dim(0), num_experts_per_tok});
    const DeviceTensor weights = empty(DType::kF32, {x.dim(0), num_experts_per_tok});
    rules.x = device_x.view();
    rules.weight = device_weight.view();
    if (rules.kind == GateKind::kSigmoidNoAux) rules.bias = device_bias.view();
    rules.ids = ids.view();
    rules.weights = weights.view();
    ops::moe_gate(rules, stream());
    return {.ids = download(ids.view()), .weights = download(weights.view())};
  }
};
INSTANTIATE_TEST_SUITE_P(backends, MoeTest, testing::ValuesIn(tested_backends()), backend_name);

constexpr Bound kGateBound{.abs = 1e-6, .rel = 1e-5, .one_minus_cosine = 1e-11};
constexpr Bounds kGateBounds{.f32 = kGateBound, .bf16 = kGateBound};
constexpr Bounds kSame{};

struct GateCase {
  const char* name;
  GateKind kind;
  int64_t hidden_size, n_routed_experts, num_experts_per_tok;
  int n_group, topk_group;
  bool norm_topk_prob;
  float routed_scaling_factor;
};

// The published gates with a smaller hidden size, then odd ones.
const std::vector<GateCase> kGates = {
    {"V2-Lite", GateKind::kSoftmaxGreedy, 512, 64, 6, 1, 1, false, 1.0f},
    {"V2", GateKind::kSoftmaxGroups, 640, 160, 6, 8, 3, false, 16.0f},
    {"V3", GateKind::kSigmoidNoAux, 896, 256, 8, 8, 4, true, 2.5f},
    {"Moonlight", GateKind::kSigmoidNoAux, 256, 64, 6, 1, 1, true, 2.446f},
    {"Kimi-K2", GateKind::kSigmoidNoAux, 448, 384, 8, 1, 1, true, 2.827f},
    {"odd", GateKind::kSigmoidNoAux, 69, 61, 61, 1, 1, false, 1.0f},
    {"groups of one", GateKind::kSigmoidNoAux, 61, 7, 3, 7, 3, true, 1.0f},
    {"one expert", GateKind::kSoftmaxGreedy, 1, 1, 1, 1, 1, true, 1.0f},
};

ops::MoeGateArgs rules_of(const GateCase& c) {
  ops::MoeGateArgs rules;
  rules.kind = c.kind;
  rules.n_group = c.n_group;
  rules.topk_group = c.topk_group;
  rules.norm_topk_prob = c.norm_topk_prob;
  rules.routed_scaling_factor = c.routed_scaling_factor;
  return rules;
}

// Rows with what they choose, drawn again where rounding would decide which of two experts comes first.
std::pair<HostTensor, ref::GateChoice> clear_rows(const std::function<HostTensor()>& draw,
                                                  const GateCase& c, const HostTensor& weight,
                                                  const HostTensor& bias) {
  for (int i = 0; i < 100; ++i) {
    const HostTensor x = draw();
    ref::GateChoice choice = ref::moe_gate(x, weight, bias, rules_of(c), c.num_experts_per_tok);
    if (choice.margin > ref::kClearMargin) return {x, std::move(choice)};
  }
  throw std::logic_error("no rows with a clear choice");
}

TEST_P(MoeTest, moe_gate_matches_float64_for_the_published_gates) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    if (!backend().supports("moe_gate", dtype)) continue;
    for (const GateCase& c : kGates) {
      for (const int64_t tokens : {0, 1, 69}) {
        SCOPED_TRACE(testing::Message() << c.name << " " << tensor::dtype_name(dtype));
        ref::Random random(static_cast<uint64_t>(c.n_routed_experts));
        const double deviation = 1.5 / std::sqrt(static_cast<double>(c.hidden_size));
        const HostTensor weight =
            random.normal(dtype, {c.n_routed_experts, c.hidden_size}, deviation);
        const HostTensor bias = random.normal(DType::kF32, {c.n_routed_experts}, 0.1);
        const auto draw = [&] { return random.normal(act(), {tokens, c.hidden_size}); };
        const auto [x, expected] = clear_rows(draw, c, weight, bias);
        const ref::GateChoice actual =
            run_gate(x, weight, bias, rules_of(c), c.num_experts_per_tok);
        expect_close(actual.ids, expected.ids, kSame);
        expect_close(actual.weights, expected.weights, kGateBounds);
      }
    }
  }
}

// Of many tokens backends may choose with another kernel. The same rows over and over, every fifth of them padding.
TEST_P(MoeTest, moe_gate_of_many_tokens_matches_float64) {
  constexpr int64_t kTokens = 1500, kRows = 69;
  for (const GateCase& c : kGates) {
    SCOPED_TRACE(c.name);
    ref::Random random(static_cast<uint64_t>(c.n_routed_experts));
    const double deviation = 1.5 / std::sqrt(static_cast<double>(c.hidden_size));
    const HostTensor weight =
        random.normal(DType::kBf16, {c.n_routed_experts, c.hidden_size}, deviation);
    const HostTensor bias = random.normal(DType::kF32, {c.n_routed_experts}, 0.1);
    const auto draw = [&] { return random.normal(act(), {kRows, c.hidden_size}); };
    const auto [rows, of_rows] = clear_rows(draw, c, weight, bias);
    HostTensor x(act(), {kTokens, c.hidden_size});
    std::vector<int64_t> kv_rows(kTokens);
    for (int64_t t = 0; t < kTokens; ++t) {
      kv_rows[static_cast<size_t>(t)] = t % 5 == 3 ? -1 : t;
      for (int64_t i = 0; i < c.hidden_size; ++i) x.at(t, i) = rows.at(t % kRows, i);
    }
    const DeviceTensor device_rows = upload<int64_t>({kTokens}, kv_rows);
    ops::MoeGateArgs rules = rules_of(c);
    rules.kv_rows = device_rows.view();
    const ref::GateChoice actual = run_gate(x, weight, bias, rules, c.num_experts_per_tok);
    HostTensor ids(DType::kI32, {kTokens, c.num_experts_per_tok}, -1.0);
    HostTensor weights(DType::kF32, {kTokens, c.num_experts_per_tok}, 0.0);
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t j = 0; j < c.num_experts_per_tok && t % 5 != 3; ++j) {
        ids.at(t, j) = of_rows.ids.at(t % kRows, j);
        weights.at(t, j) = of_rows.weights.at(t % kRows, j);
      }
    expect_close(actual.ids, ids, kSame);
    expect_close(actual.weights, weights, kGateBounds);
  }
}

TEST_P(MoeTest, moe_gate_gives_ties_to_the_lower_index) {
  const HostTensor x(act(), {2, 16}, 1.0), weight(DType::kF32, {12, 16}, 0.0);
  const HostTensor bias(DType::kF32, {12}, 0.5);
  for (const GateKind kind :
       {GateKind::kSoftmaxGreedy, GateKind::kSoftmaxGroups, GateKind::kSigmoidNoAux}) {
    ops::MoeGateArgs rules;
    rules.kind = kind;
    rules.n_group = 3;
    rules.topk_group = 2;
    const ref::GateChoice choice = run_gate(x, weight, bias, rules, 6);
    for (int64_t j = 0; j < 6; ++j) EXPECT_EQ(choice.ids.at(1, j), static_cast<double>(j));
  }
}

TEST_P(MoeTest, moe_gate_chooses_by_bias_but_weighs_without_it) {
  const HostTensor x(act(), {1, 4}, 1.0);
  HostTensor weight(DType::kF32, {4, 4}, 0.0), bias(DType::kF32, {4}, 0.0);
  for (int64_t i = 0; i < 4; ++i) weight.at(0, i) = 1.0;  // the best without bias
  bias.at(2) = 5.0;
  bias.at(3) = -5.0;
  ops::MoeGateArgs rules;
  rules.routed_scaling_factor = 2.0f;
  const ref::GateChoice choice = run_gate(x, weight, bias, rules, 4);
  EXPECT_EQ(choice.ids.values, (std::vector<double>{2, 0, 1, 3}));
  const double best = 1 / (1 + std::exp(-4.0));
  EXPECT_NEAR(choice.weights.at(0, 0), 2 * 0.5, 1e-6);
  EXPECT_NEAR(choice.weights.at(0, 1), 2 * best, 1e-6);
}

TEST_P(MoeTest, moe_gate_of_a_nan_row_still_names_distinct_experts) {
  ref::Random random(3);
  HostTensor x = random.normal(act(), {3, 32});
  x.at(1, 0) = std::nan("");
  const HostTensor weight = random.normal(DType::kF32, {16, 32});
  const HostTensor bias(DType::kF32, {16}, 0.0);
  for (const GateKind kind :
       {GateKind::kSoftmaxGreedy, GateKind::kSoftmaxGroups, GateKind::kSigmoidNoAux}) {
    ops::MoeGateArgs rules;
    rules.kind = kind;
    rules.n_group = 4;
    rules.topk_group = 2;
    const ref::GateChoice choice = run_gate(x, weight, bias, rules, 6);
    std::set<double> ids;
    for (int64_t j = 0; j < 6; ++j) {
      ids.insert(choice.ids.at(1, j));
      EXPECT_TRUE(std::isnan(choice.weights.at(1, j)));
      EXPECT_FALSE(std::isnan(choice.weights.at(0, j)) || std::isnan(choice.weights.at(2, j)));
    }
    EXPECT_EQ(ids.size(), 6u);
    EXPECT_GE(*ids.begin(), 0);
    EXPECT_LT(*ids.rbegin(), 16);
  }
}

TEST_P(MoeTest, moe_gate_gives_padding_rows_no_experts_and_leaves_the_others_alone) {
  ref::Random random(4);
  HostTensor x = random.normal(act(), {5, 64});
  const DeviceTensor weight = upload(random.normal(DType::kF32, {16, 64}));
  const DeviceTensor bias = upload(random.normal(DType::kF32, {16}, 0.1));
  const DeviceTensor kv_rows = upload<int64_t>({5}, {7, -1, 0, 3, -1});
  const auto run = [&](const Tensor& rows) {
    const DeviceTensor device_x = upload(x);
    const DeviceTensor ids = empty(DType::kI32, {5, 4}), weights = empty(DType::kF32, {5, 4});
    ops::moe_gate({.x = device_x.view(),
                   .weight = weight.view(),
                   .bias = bias.view(),
                   .kv_rows = rows,
                   .n_group = 4,
                   .topk_group = 2,
                   .ids = ids.view(),
                   .weights = weights.view()},
                  stream());
    return ref::GateChoice{.ids = download(ids.view()), .weights = download(weights.view())};
  };
  const ref::GateChoice all = run({});
  const auto expect_no_experts_in_padding = [&] {
    const ref::GateChoice padded = run(kv_rows.view());
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t j = 0; j < 4; ++j) {
        const bool is_padding = t == 1 || t == 4;
        EXPECT_EQ(padded.ids.at(t, j), is_padding ? -1 : all.ids.at(t, j));
        EXPECT_EQ(padded.weights.at(t, j), is_padding ? 0 : all.weights.at(t, j));
      }
  };
  expect_no_experts_in_padding();
  for (const double garbage : kGarbage) {
    SCOPED_TRACE(testing::Message() << "padding of " << garbage);
    for (const int64_t t : {1, 4})
      for (int64_t i = 0; i < 64; ++i) x.at(t, i) = ref::round_to(act(), garbage);
    expect_no_experts_in_padding();
  }
}

struct ExpertsCase {
  int64_t tokens, hidden_size, inter, experts, num_experts_per_tok;
};

struct ExpertsInputs {
  HostTensor x, ids, weights, before;
  ref::HostWeight gate_up, down;
  int64_t first_expert = 0;
};

class MoeExpertsTest : public OpsTest {
 protected:
  ExpertsInputs make_inputs(const ExpertsCase& c, DType dtype) {
    ref::Random random(static_cast<uint64_t>(c.tokens * 100 + c.hidden_size));
    ExpertsInputs in{
        .x = random.normal(act(), {c.tokens, c.hidden_size}),
        .ids = HostTensor(DType::kI32, {c.tokens, c.num_experts_per_tok}),
        .weights = random.uniform(DType::kF32, {c.tokens, c.num_experts_per_tok}, 0.1, 1),
        .before = random.normal(act(), {c.tokens, c.hidden_size}),
        .gate_up = ref::random_weight(random, dtype, {c.experts, 2, c.inter, c.hidden_size}),
        .down = ref::random_weight(random, dtype, {c.experts, c.hidden_size, c.inter})};
    for (int64_t t = 0; t < c.tokens; ++t) {
      const std::vector<int32_t> order = random.permutation(static_cast<int>(c.experts));
      for (int64_t j = 0; j < c.num_experts_per_tok; ++j) {
        in.ids.at(t, j) = order[static_cast<size_t>(j)];
      }
      if (t % 7 == 6) in.ids.at(t, 0) = -1;
      if (t % 11 == 10) {
        for (int64_t j = 0; j < c.num_experts_per_tok; ++j) in.ids.at(t, j) = -1;
      }
    }
    return in;
  }

  HostTensor run(const ExpertsInputs& in, bool accumulate, int64_t begin, int64_t end,
                 std::vector<uint8_t>* raw = nullptr) {
    const DeviceTensor x = upload(in.x.rows(begin, end)), ids = upload(in.ids.rows(begin, end));
    const DeviceTensor weights = upload(in.weights.rows(begin, end));
    const DeviceTensor gate_up = upload(in.gate_up.data), down = upload(in.down.data);
    const bool is_f8 = in.down.data.dtype == DType::kF8E4M3;
    const DeviceTensor gate_up_scale = upload(is_f8 ? in.gate_up.scale : in.before);
    const DeviceTensor down_scale = upload(is_f8 ? in.down.scale : in.before);
    const DeviceTensor out = upload(in.before.rows(begin, end));
    ops::moe_experts(
        {.x = x.view(),
         .ids = ids.view(),
         .weights = weights.view(),
         .gate_up = {.data = gate_up.view(), .scale = is_f8 ? gate_up_scale.view() : Tensor()},
         .down = {.data = down.view(), .scale = is_f8 ? down_scale.view() : Tensor()},
         .first_expert = in.first_expert,
         .accumulate = accumulate,
         .out = out.view()},
        stream());
    if (raw != nullptr) *raw = bytes(out.view());
    return download(out.view());
  }
};
INSTANTIATE_TEST_SUITE_P(backends, MoeExpertsTest, testing::ValuesIn(tested_backends()),
                         backend_name);

const std::vector<ExpertsCase> kExperts = {{0, 128, 64, 4, 2},   {1, 512, 256, 3, 2},
                                           {69, 128, 130, 8, 3}, {61, 69, 61, 5, 5},
                                           {3, 2046, 69, 2, 2},  {130, 64, 32, 2, 1}};
constexpr Bounds kExpertBounds{.f32 = {.abs = 2e-5, .rel = 2e-5, .one_minus_cosine = 1e-10},
                               .bf16 = {.abs = 3e-2, .rel = 2e-2, .one_minus_cosine = 1e-4}};
// A hidden value at the edge of two FP8 neighbours may fall to either.
constexpr Bounds kFp8ExpertBounds{
    .f32 = {.abs = 2e-2, .rel = 1e-3, .one_minus_cosine = 1e-5},
    .bf16 = {.abs = 5e-2, .rel = 5e-2, .one_minus_cosine = 1e-3, .rare = 5e-3}};

TEST_P(MoeExpertsTest, match_float64_with_and_without_accumulating) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
    if (!backend().supports("moe_experts", dtype)) continue;
    for (const ExpertsCase& c : kExperts) {
      SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << " " << c.tokens << " tokens "
                                      << c.hidden_size << "x" << c.inter);
      const ExpertsInputs in = make_inputs(c, dtype);
      const Bounds bounds = dtype == DType::kF8E4M3 ? kFp8ExpertBounds : kExpertBounds;
      HostTensor expected = ref::moe_experts(in.x, in.ids, in.weights, in.gate_up, in.down);
      expect_close(run(in, false, 0, c.tokens), expected, bounds);
      for (size_t i = 0; i < expected.values.size(); ++i) expected.values[i] += in.before.values[i];
      expect_close(run(in, true, 0, c.tokens), expected, bounds);
    }
  }
}

// As ranks hold experts: 4 to 7 of 12, by their numbers and counted from the first.
TEST_P(MoeExpertsTest, skip_the_experts_that_another_rank_holds) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3})
    for (const int64_t tokens : {1, 2, 23, 300}) {
      if (!backend().supports("moe_experts", dtype)) continue;
      ExpertsInputs all = make_inputs({tokens, 256, 128, 4, 3}, dtype), held = all;
      ref::Random random(static_cast<uint64_t>(tokens));
      int64_t num_held = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        const std::vector<int32_t> order = random.permutation(12);
        for (int64_t j = 0; j < 3; ++j) {
          const int32_t id = t % 7 == 6 ? -1 : order[static_cast<size_t>(j)];
          all.ids.at(t, j) = id;
          held.ids.at(t, j) = id >= 4 && id < 8 ? id - 4 : -1;
          num_held += id >= 4 && id < 8;
        }
      }
      all.first_expert = 4;
      std::vector<uint8_t> by_number, by_place;
      run(all, false, 0, tokens, &by_number);
      run(held, false, 0, tokens, &by_place);
      EXPECT_EQ(by_number, by_place) << tensor::dtype_name(dtype) << " " << tokens;
      EXPECT_TRUE(num_held > 0 || tokens < 3);
    }
}

TEST_P(MoeExpertsTest, rows_do_not_depend_on_the_batch) {
  // Only a batch-invariant backend promises more rows than a decode has.
  const int64_t tokens = backend().batch_invariant ? 130 : 128;
  const std::vector<int64_t> cuts = {0, 1, 4, 9, 64, 65, 126, tokens};
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3})
    for (ExpertsCase c :
         {ExpertsCase{tokens, 200, 140, 6, 3}, ExpertsCase{tokens, 256, 384, 11, 3}}) {
      if (!backend().supports("moe_experts", dtype)) continue;
      // Multiples of 64 are of two classes there.
      if (dtype == DType::kBf16 && c.inter % 64 == 0 && !backend().batch_invariant) c.inter += 8;
      const ExpertsInputs in = make_inputs(c, dtype);
      std::vector<uint8_t> all, pieces;
      run(in, true, 0, c.tokens, &all);
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        std::vector<uint8_t> piece;
        run(in, true, cuts[i], cuts[i + 1], &piece);
        pieces.insert(pieces.end(), piece.begin(), piece.end());
      }
      EXPECT_EQ(pieces, all) << tensor::dtype_name(dtype) << " " << c.hidden_size;
    }
}

// FP8 experts of 256 channels have kernels of their own, whose blocks divide the channels by the number of tokens; bf16
// ones of 2048 channels have some whose blocks divide the experts.
TEST_P(MoeExpertsTest, rows_of_few_tokens_do_not_depend_on_the_batch) {
  for (const auto& [dtype, c] : {std::pair{DType::kF8E4M3, ExpertsCase{8, 1152, 256, 4, 2}},
                                 std::pair{DType::kBf16, ExpertsCase{8, 2048, 576, 3, 2}}}) {
    if (!backend().supports("moe_experts", dtype)) continue;
    if (dtype == DType::kBf16 && !backend().device_memory) continue;  // one way for any channels
    const ExpertsInputs in = make_inputs(c, dtype);
    std::vector<uint8_t> all;
    run(in, true, 0, c.tokens, &all);
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{0, 1, 3, 8}, std::vector<int64_t>{0, 4, 7, 8}}) {
      std::vector<uint8_t> pieces;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        std::vector<uint8_t> piece;
        run(in, true, cuts[i], cuts[i + 1], &piece);
        pieces.insert(pieces.end(), piece.begin(), piece.end());
      }
      EXPECT_EQ(pieces, all) << tensor::dtype_name(dtype) << " " << cuts[1];
    }
  }
}

// More pairs of an expert than there are tokens.
TEST_P(MoeExpertsTest, tokens_may_name_an_expert_twice) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
    if (!backend().supports("moe_experts", dtype)) continue;
    const ExpertsCase c{7, 128, 256, 2, 2};
    ExpertsInputs in = make_inputs(c, dtype);
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t j = 0; j < c.num_experts_per_tok; ++j)
        in.ids.at(t, j) = t == 3 && j == 0 ? 0 : 1;
    expect_close(run(in, false, 0, c.tokens),
                 ref::moe_experts(in.x, in.ids, in.weights, in.gate_up, in.down),
                 dtype == DType::kF8E4M3 ? kFp8ExpertBounds : kExpertBounds);
  }
}

// One token has kernels in which its pairs are the groups.
TEST_P(MoeExpertsTest, a_lone_token_may_name_an_expert_twice_or_none_at_all) {
  if (!backend().supports("moe_experts", DType::kF8E4M3)) GTEST_SKIP() << "no FP8 experts";
  const ExpertsCase c{4, 384, 256, 3, 3};
  ExpertsInputs in = make_inputs(c, DType::kF8E4M3);
  constexpr int kIds[4][3] = {{1, 1, 0}, {-1, 2, 2}, {0, -1, -1}, {-1, -1, -1}};
  for (int64_t t = 0; t < c.tokens; ++t)
    for (int64_t j = 0; j < 3; ++j) in.ids.at(t, j) = kIds[t][j];
  std::vector<uint8_t> all, lone;
  expect_close(run(in, false, 0, c.tokens, &all),
               ref::moe_experts(in.x, in.ids, in.weights, in.gate_up, in.down), kFp8ExpertBounds);
  for (int64_t t = 0; t < c.tokens; ++t) {
    std::vector<uint8_t> piece;
    run(in, false, t, t + 1, &piece);
    lone.insert(lone.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(lone, all);
}

TEST_P(MoeExpertsTest, garbage_in_rows_without_experts_changes_no_bit_of_the_others) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
    if (!backend().supports("moe_experts", dtype)) continue;
    const ExpertsCase c{23, 256, 128, 6, 3};
    ExpertsInputs in = make_inputs(c, dtype);
    const auto is_padding = [](int64_t t) { return t % 3 == 1 || t >= 20; };
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t j = 0; is_padding(t) && j < c.num_experts_per_tok; ++j) in.ids.at(t, j) = -1;
    for (const bool accumulate : {false, true}) {
      ExpertsInputs padded = in;
      std::vector<uint8_t> clean, dirty;
      run(padded, accumulate, 0, c.tokens, &clean);
      for (const double garbage : kGarbage) {
        for (int64_t t = 0; t < c.tokens; ++t) {
          for (int64_t i = 0; is_padding(t) && i < c.hidden_size; ++i)
            padded.x.at(t, i) = ref::round_to(act(), garbage);
          for (int64_t j = 0; is_padding(t) && j < c.num_experts_per_tok; ++j)
            padded.weights.at(t, j) = garbage;
        }
        run(padded, accumulate, 0, c.tokens, &dirty);
        // Nothing is added to the padding either: what was there, or 0.
        EXPECT_TRUE(dirty == clean)
            << tensor::dtype_name(dtype) << ", accumulate " << accumulate << ", " << garbage;
      }
    }
  }
}

TEST_P(MoeExpertsTest, a_nan_in_one_row_stays_in_that_row) {
  const ExpertsCase c{6, 64, 32, 2, 2};
  ExpertsInputs in = make_inputs(c, act());
  in.x.at(2, 0) = std::nan("");
  const HostTensor out = run(in, false, 0, c.tokens);
  for (int64_t t = 0; t < c.tokens; ++t) EXPECT_EQ(std::isnan(out.at(t, 1)), t == 2) << t;
}

TEST_P(MoeTest, moe_gate_rows_do_not_depend_on_the_batch) {
  ref::Random random(9);
  const HostTensor bias(DType::kF32, {64}, 0.0);
  for (const int64_t hidden : {300, 512}) {
    const HostTensor x = random.normal(act(), {70, hidden}),
                     weight = random.normal(act(), {64, hidden});
    for (const int groups : {1, 2}) {
      ops::MoeGateArgs rules;
      rules.n_group = groups;
      const ref::GateChoice all = run_gate(x, weight, bias, rules, 6);
      for (const int64_t row : {0, 31, 69}) {
        const ref::GateChoice one = run_gate(x.rows(row, row + 1), weight, bias, rules, 6);
        EXPECT_EQ(one.ids.values, all.ids.rows(row, row + 1).values) << hidden << " " << row;
        EXPECT_EQ(one.weights.values, all.weights.rows(row, row + 1).values)
            << hidden << " " << row;
      }
    }
  }
}

}  // namespace
}  // namespace fathom::ops_test
