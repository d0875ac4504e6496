// The smallest calls that reach the kernels of the CUDA backend which other tests reach with large ones or not at all.
// Small enough for compute-sanitizer (tools/gpu_tests.sh).

#include <cmath>
#include <utility>
#include <vector>

#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/rms_norm.h"
#include "tests/ops/device.h"
#include "tests/ops/weight_kinds.h"
#include "tests/ref/oracle.h"

namespace fathom::ops_test {
namespace {

class KernelChoiceTest : public OpsTest {
 protected:
  struct DeviceWeight {
    DeviceTensor data, scale;
    bool has_scale;
    // Matrices [begin, end) of a stack.
    ops::Weight part(int64_t begin, int64_t end) const {
      return {.data = data.view().slice(0, begin, end),
              .scale = has_scale ? scale.view().slice(0, begin, end) : Tensor()};
    }
    ops::Weight one(int64_t index) const {
      return {.data = data.view()[index], .scale = has_scale ? scale.view()[index] : Tensor()};
    }
    ops::Weight view() const {
      return {.data = data.view(), .scale = has_scale ? scale.view() : Tensor()};
    }
  };
  DeviceWeight put(const ref::HostWeight& weight) {
    const bool has_scale = !weight.scale.shape.empty();
    return {.data = upload(weight.data),
            .scale = upload(has_scale ? weight.scale : HostTensor(DType::kF32, {1})),
            .has_scale = has_scale};
  }

  // Shared experts stand behind the routed ones in the weights here, so that the oracle can name them with weight 1.
  void expect_right_experts(const WeightKind& kind, int64_t tokens, int64_t hidden,
                            bool with_shared, int64_t inter = 128);
};
INSTANTIATE_TEST_SUITE_P(backends, KernelChoiceTest, testing::ValuesIn(one_of_each_backend()),
                         backend_name);

constexpr Bounds kChoiceBounds{.f32 = {.abs = 1e-5, .rel = 1e-5, .one_minus_cosine = 1e-10},
                               .bf16 = {.abs = 2e-2, .rel = 1e-2, .one_minus_cosine = 1e-4}};
// A hidden value at the edge of two FP8 neighbours may fall to either; more do where the tensor cores sum many rows
// (large_product_test.cc).
constexpr Bounds kExpertsBounds{
    .f32 = {.abs = 2e-2, .rel = 1e-3, .one_minus_cosine = 1e-5},
    .bf16 = {.abs = 1e-1, .rel = 5e-2, .one_minus_cosine = 2e-4, .rare = 5e-3}};

// Enough rows of weights for the wide kernels of a batch-invariant GPU, with a tail of tokens.
TEST_P(KernelChoiceTest, linear_of_many_outputs_matches_float64) {
  for (const WeightKind& kind : kWeightKinds) {
    if (!backend().supports("linear", kind.dtype) || !fits(kind, 160)) continue;
    ref::Random random(31);
    const int64_t tokens = 66, in = 160, out = 5200;
    const HostTensor x = random.normal(act(), {tokens, in});
    const ref::HostWeight weight = random_weight(random, kind, {out, in});
    const DeviceTensor device_x = upload(x), result = empty(act(), {tokens, out});
    const DeviceWeight device_weight = put(weight);
    ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = result.view()},
                stream());
    expect_close(download(result.view()), ref::linear(x, weight), kChoiceBounds);
  }
}

// Tokens on both sides of every limit between kernels: tails of their tiles, and one more than a class has.
TEST_P(KernelChoiceTest, linear_matches_float64_beside_every_limit_of_tokens) {
  for (const WeightKind& kind : kWeightKinds) {
    if (!backend().supports("linear", kind.dtype) || !fits(kind, 272)) continue;
    for (const int64_t tokens : {8, 9, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 2046}) {
      SCOPED_TRACE(testing::Message() << kind.name << ", " << tokens << " tokens");
      ref::Random random(static_cast<uint64_t>(tokens));
      const int64_t in = 272, out = 136;
      const HostTensor x = random.normal(act(), {tokens, in});
      const ref::HostWeight weight = random_weight(random, kind, {out, in});
      const DeviceTensor device_x = upload(x), result = empty(act(), {tokens, out});
      const DeviceWeight device_weight = put(weight);
      ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = result.view()},
                  stream());
      expect_close(download(result.view()), ref::linear(x, weight), kChoiceBounds);
    }
  }
}

// Matrices that few rows find on the chip, in FP8 and bf16: clusters of 2, 4 and 8 blocks, whose parts have 4 steps and
// 2 or 3, tails of outputs, and two matrices in a call. A row has the same bits in any company of up to 8.
TEST_P(KernelChoiceTest, few_rows_of_many_channels_match_float64_with_the_same_bits) {
  for (const auto& [dtype, in] : {std::pair<DType, int64_t>{DType::kF8E4M3, 2048},
                                  {DType::kF8E4M3, 4352},
                                  {DType::kBf16, 2048},
                                  {DType::kBf16, 2240},
                                  {DType::kBf16, 4096}}) {
    if (!backend().supports("linear", dtype)) continue;
    ref::Random random(static_cast<uint64_t>(in));
    const int64_t out = 200, other_out = 72;
    const HostTensor all = random.normal(act(), {8, in});
    const ref::HostWeight weight = ref::random_weight(random, dtype, {out, in});
    const ref::HostWeight other = ref::random_weight(random, dtype, {other_out, in});
    const DeviceWeight device_weight = put(weight), device_other = put(other);
    std::vector<double> first_row;
    for (const int64_t tokens : {8, 3, 1}) {
      SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << ", " << in << " channels, "
                                      << tokens << " tokens");
      const HostTensor x = all.rows(0, tokens);
      const DeviceTensor device_x = upload(x), result = empty(act(), {tokens, out});
      const DeviceTensor one = empty(act(), {tokens, out}), two = empty(act(), {tokens, other_out});
      ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = result.view()},
                  stream());
      ops::linear_pair({.x = device_x.view(),
                        .a = {.weight = device_weight.view(), .out = one.view()},
                        .b = {.weight = device_other.view(), .out = two.view()}},
                       stream());
      const HostTensor got = download(result.view());
      expect_close(got, ref::linear(x, weight), kChoiceBounds);
      expect_close(download(two.view()), ref::linear(x, other), kChoiceBounds);
      EXPECT_EQ(download(one.view()).values, got.values);
      if (first_row.empty()) first_row = got.rows(0, 1).values;
      EXPECT_EQ(got.rows(0, 1).values, first_row);
    }
  }
}

void KernelChoiceTest::expect_right_experts(const WeightKind& kind, int64_t tokens, int64_t hidden,
                                            bool with_shared, int64_t inter) {
  SCOPED_TRACE(testing::Message() << kind.name << ", " << tokens << " tokens"
                                  << (with_shared ? ", shared" : ""));
  const int64_t experts = hidden < 2048 ? 4 : 2, routed = 2;
  ref::Random random(static_cast<uint64_t>(tokens));
  const HostTensor x = random.normal(act(), {tokens, hidden});
  const HostTensor before = random.normal(act(), {tokens, hidden});
  HostTensor ids(DType::kI32, {tokens, routed}), all_ids(DType::kI32, {tokens, routed + 1});
  const HostTensor weights = random.uniform(DType::kF32, {tokens, routed}, 0.1, 1);
  HostTensor all_weights(DType::kF32, {tokens, routed + 1}, 1.0);
  for (int64_t t = 0; t < tokens; ++t) {
    const std::vector<int32_t> order = random.permutation(static_cast<int>(experts));
    for (int64_t j = 0; j < routed; ++j) {
      ids.at(t, j) = t % 5 == 4 && j == 0 ? -1 : order[static_cast<size_t>(j)];
      all_ids.at(t, j) = ids.at(t, j);
      all_weights.at(t, j) = weights.at(t, j);
    }
    all_ids.at(t, routed) = static_cast<double>(experts);
  }
  const ref::HostWeight gate_up = random_weight(random, kind, {experts + 1, 2, inter, hidden});
  const ref::HostWeight down = random_weight(random, kind, {experts + 1, hidden, inter});
  const DeviceTensor device_x = upload(x), device_ids = upload(ids),
                     device_weights = upload(weights);
  const DeviceTensor out = upload(before);
  const DeviceWeight device_gate_up = put(gate_up), device_down = put(down);
  const ops::MoeExpertsArgs args{.x = device_x.view(),
                                 .ids = device_ids.view(),
                                 .weights = device_weights.view(),
                                 .gate_up = device_gate_up.part(0, experts),
                                 .down = device_down.part(0, experts),
                                 .accumulate = true,
                                 .out = out.view()};
  HostTensor expected;
  if (with_shared) {
    ops::MoeExpertsArgs routed_part = args;
    routed_part.accumulate = false;
    ops::moe_experts_shared({.experts = routed_part,
                             .shared_gate_up = device_gate_up.one(experts),
                             .shared_down = device_down.one(experts)},
                            stream());
    expected = ref::moe_experts(x, all_ids, all_weights, gate_up, down);
  } else {
    ops::moe_experts(args, stream());
    expected = ref::moe_experts(x, ids, weights, gate_up, down);
    for (size_t i = 0; i < expected.values.size(); ++i) expected.values[i] += before.values[i];
  }
  expect_close(download(out.view()), expected, kExpertsBounds);
}

// Few tokens without sorting, sorted ones, wide groups of either weight type; of bf16 with a width that no kernel for
// few rows of an expert has.
TEST_P(KernelChoiceTest, experts_of_few_tokens_match_float64) {
  for (const WeightKind& kind : kWeightKinds)
    for (const int64_t tokens : {1, 2, 5, 9, 49})
      if (backend().supports("moe_experts", kind.dtype))
        expect_right_experts(kind, tokens, 256, false, kind.dtype == DType::kBf16 ? 136 : 128);
}

// Enough outputs to fill a GPU with small blocks, of the types that need no sorting of two tokens there.
TEST_P(KernelChoiceTest, experts_of_few_tokens_and_many_outputs_match_float64) {
  for (const WeightKind& kind : kWeightKinds) {
    const bool is_sorted =
        kind.dtype != DType::kF8E4M3 && kind.dtype != DType::kI4x2 && kind.dtype != DType::kBf16;
    if (!is_sorted && backend().supports("moe_experts", kind.dtype))
      expect_right_experts(kind, 2, 1152, false);
  }
}

// Of a width that has a kernel for few rows of an expert.
TEST_P(KernelChoiceTest, experts_of_few_rows_match_float64) {
  for (const WeightKind& kind : kWeightKinds)
    for (const int64_t tokens : {9, 24, 40, 128})
      if ((kind.dtype == DType::kF8E4M3 || kind.dtype == DType::kBf16) &&
          backend().supports("moe_experts", kind.dtype))
        expect_right_experts(kind, tokens, 128, false, 256);
}

// Of a width that has a kernel for few tokens.
TEST_P(KernelChoiceTest, experts_of_256_channels_and_eight_tokens_match_float64) {
  for (const WeightKind& kind : kWeightKinds)
    if ((kind.dtype == DType::kF8E4M3 || kind.dtype == DType::kBf16) &&
        backend().supports("moe_experts", kind.dtype))
      expect_right_experts(kind, 8, 128, false, 256);
}

// The channels of a tile are several blocks'.
TEST_P(KernelChoiceTest, fp8_experts_of_few_rows_and_many_channels_match_float64) {
  if (!backend().supports("moe_experts", DType::kF8E4M3)) GTEST_SKIP() << "no FP8 experts";
  for (const WeightKind& kind : kWeightKinds)
    if (kind.dtype == DType::kF8E4M3) expect_right_experts(kind, 9, 1152, false, 256);
}

// With 1152 channels the parts of a row have one or two blocks of scales, with 128 most have none.
TEST_P(KernelChoiceTest, fp8_experts_of_256_channels_match_float64) {
  if (!backend().supports("moe_experts", DType::kF8E4M3)) GTEST_SKIP() << "no FP8 experts";
  for (const WeightKind& kind : kWeightKinds) {
    if (kind.dtype != DType::kF8E4M3) continue;
    for (const int64_t tokens : {2, 5}) expect_right_experts(kind, tokens, 128, false, 256);
    for (const int64_t tokens : {1, 3, 7}) expect_right_experts(kind, tokens, 1152, false, 256);
  }
}

// The parts of down's rows have one line or two.
TEST_P(KernelChoiceTest, bf16_experts_of_2048_channels_match_float64) {
  for (const WeightKind& kind : kWeightKinds)
    if (kind.dtype == DType::kBf16 && backend().supports("moe_experts", kind.dtype))
      expect_right_experts(kind, 7, 2048, false, 576);
}

TEST_P(KernelChoiceTest, experts_match_float64_beside_every_limit_of_tokens) {
  for (const WeightKind& kind : kWeightKinds)
    for (const int64_t tokens : {128, 129, 2046})
      if (backend().supports("moe_experts", kind.dtype))
        expect_right_experts(kind, tokens, 128, false);
}

class SharedKernelChoiceTest : public KernelChoiceTest {};
INSTANTIATE_TEST_SUITE_P(backends, SharedKernelChoiceTest,
                         testing::ValuesIn(backends_with(&ops::Backend::moe_experts_shared)),
                         backend_name);

TEST_P(SharedKernelChoiceTest, shared_experts_of_few_tokens_match_float64) {
  for (const WeightKind& kind : kWeightKinds)
    for (const int64_t tokens : {1, 5, 8})
      if (backend().supports("moe_experts_shared", kind.dtype)) {
        expect_right_experts(kind, tokens, 256, true);
        if (kind.dtype == DType::kF8E4M3) expect_right_experts(kind, tokens, 128, true, 256);
      }
}

TEST_P(SharedKernelChoiceTest, shared_bf16_experts_of_2048_channels_match_float64) {
  for (const WeightKind& kind : kWeightKinds)
    if (kind.dtype == DType::kBf16 && backend().supports("moe_experts_shared", kind.dtype))
      expect_right_experts(kind, 5, 2048, true, 512);
}

// Of a width that has a kernel for few rows of an expert; of bf16 beyond them too.
TEST_P(SharedKernelChoiceTest, shared_experts_of_few_rows_match_float64) {
  for (const WeightKind& kind : kWeightKinds) {
    for (const int64_t tokens : {9, 64, 129, 300})
      if (kind.dtype == DType::kBf16) expect_right_experts(kind, tokens, 128, true, 192);
    for (const int64_t tokens : {9, 128})
      if (kind.dtype == DType::kF8E4M3) expect_right_experts(kind, tokens, 384, true, 256);
  }
}

// Wider than a block's registers hold, with a tail.
TEST_P(KernelChoiceTest, rms_norm_of_very_wide_rows_matches_float64) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    if (!backend().supports("rms_norm", dtype)) continue;
    ref::Random random(32);
    const int64_t rows = 3, dim = 16'390;
    const HostTensor x = random.normal(act(), {rows, dim}, 3.0);
    const HostTensor weight = random.normal(dtype, {dim});
    const DeviceTensor device_x = upload(x), device_weight = upload(weight);
    const DeviceTensor out = empty(act(), {rows, dim});
    ops::rms_norm({.x = device_x.view(),
                   .weight = device_weight.view(),
                   .eps = 1e-6f,
                   .residual = {},
                   .out = out.view()},
                  stream());
    constexpr Bounds kRounding{.f32 = {.abs = 1e-6, .rel = 1e-5, .one_minus_cosine = 1e-11},
                               .bf16 = {.abs = 1e-6, .rel = 1e-2, .one_minus_cosine = 1e-5}};
    expect_close(download(out.view()), ref::rms_norm(x, weight, 1e-6), kRounding);
  }
}

// The tokens of a whole chunk: the rows repeat, and equal rows choose equally wherever they lie.
TEST_P(KernelChoiceTest, the_gate_of_a_chunk_matches_float64) {
  if (!backend().supports("moe_gate", DType::kBf16)) GTEST_SKIP() << "no bf16 gate";
  const int64_t tokens = 1450, period = 29, hidden = 128, chosen = 4;
  const auto choose = [&](ops::MoeGateArgs args, int64_t experts) {
    ref::Random random(33);
    HostTensor rows = random.normal(act(), {period, hidden});
    const HostTensor weight = random.normal(DType::kBf16, {experts, hidden}, 0.1);
    const HostTensor bias = random.normal(DType::kF32, {experts}, 0.1);
    ref::GateChoice expected = ref::moe_gate(rows, weight, bias, args, chosen);
    while (expected.margin <= ref::kClearMargin) {  // rounding would decide
      rows = random.normal(act(), {period, hidden});
      expected = ref::moe_gate(rows, weight, bias, args, chosen);
    }
    HostTensor x(act(), {tokens, hidden});
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < hidden; ++i) x.at(t, i) = rows.at(t % period, i);
    const DeviceTensor device_x = upload(x), device_weight = upload(weight),
                       device_bias = upload(bias);
    const DeviceTensor ids = empty(DType::kI32, {tokens, chosen});
    const DeviceTensor weights = empty(DType::kF32, {tokens, chosen});
    args.x = device_x.view();
    args.weight = device_weight.view();
    if (args.kind == ops::GateKind::kSigmoidNoAux) args.bias = device_bias.view();
    args.ids = ids.view();
    args.weights = weights.view();
    ops::moe_gate(args, stream());
    const HostTensor got_ids = download(ids.view()), got_weights = download(weights.view());
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t j = 0; j < chosen; ++j) {
        ASSERT_EQ(got_ids.at(t, j), expected.ids.at(t % period, j)) << t;
        ASSERT_NEAR(got_weights.at(t, j), expected.weights.at(t % period, j), 1e-5) << t;
      }
  };
  ops::MoeGateArgs v2, v3;
  v2.kind = ops::GateKind::kSoftmaxGreedy;
  choose(v2, 24);
  v3.kind = ops::GateKind::kSigmoidNoAux;
  v3.n_group = 2;  // of 32 experts each
  v3.topk_group = 1;
  choose(v3, 64);
}

// Of a CPU, tests/cpu measures it.
TEST_P(KernelChoiceTest, a_gpus_memory_is_read_at_a_speed) {
  if (!backend().device_memory) return;
  EXPECT_GT(backend().read_bandwidth_gb_s(0), 0);
}

}  // namespace
}  // namespace fathom::ops_test
