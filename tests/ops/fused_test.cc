// Fused operators, and rows that were quantised ahead: the bits of their parts.

#include <cmath>
#include <vector>

#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/quantize_fp8.h"
#include "ops/rms_norm.h"
#include "ops/silu_mul.h"
#include "tests/ops/device.h"
#include "tests/ref/oracle.h"

namespace fathom::ops_test {
namespace {

constexpr int64_t kFusedTokens[] = {0, 1, 2, 61, 65};

class FusedTest : public OpsTest {
 protected:
  struct Rows {
    DeviceTensor q, scale;
    ops::Activation view() const { return {q.view(), scale.view()}; }
  };
  Rows empty_rows(int64_t tokens, int64_t dim) {
    return {.q = empty(DType::kF8E4M3, {tokens, dim}),
            .scale = empty(DType::kF32, {tokens, (dim + 127) / 128})};
  }
  Rows quantised(const Tensor& x) {
    Rows rows = empty_rows(x.dim(0), x.dim(1));
    ops::quantize_fp8({.x = x, .q = rows.q.view(), .scale = rows.scale.view()}, stream());
    return rows;
  }
  void expect_equal(const Rows& actual, const Rows& expected) {
    EXPECT_EQ(bytes(actual.q.view()), bytes(expected.q.view()));
    EXPECT_EQ(bytes(actual.scale.view()), bytes(expected.scale.view()));
  }

  struct DeviceWeight {
    DeviceTensor data, scale;
    bool is_f8 = false;
    ops::Weight view() const {
      return {.data = data.view(), .scale = is_f8 ? scale.view() : Tensor()};
    }
  };
  DeviceWeight upload_weight(ref::Random& random, DType dtype, std::vector<int64_t> shape) {
    const ref::HostWeight weight = ref::random_weight(random, dtype, std::move(shape));
    const bool is_f8 = dtype == DType::kF8E4M3;
    return {.data = upload(weight.data),
            .scale = is_f8 ? upload(weight.scale) : empty(DType::kF32, {1}),
            .is_f8 = is_f8};
  }
};
INSTANTIATE_TEST_SUITE_P(backends, FusedTest, testing::ValuesIn(tested_backends()), backend_name);

// A suite for each fused operator, on the backends that have it.
class RmsNormQuantizeTest : public FusedTest {};
class SiluMulQuantizeTest : public FusedTest {};
class LinearPairTest : public FusedTest {};
INSTANTIATE_TEST_SUITE_P(backends, RmsNormQuantizeTest,
                         testing::ValuesIn(backends_with(&ops::Backend::rms_norm_quantize)),
                         backend_name);
INSTANTIATE_TEST_SUITE_P(backends, SiluMulQuantizeTest,
                         testing::ValuesIn(backends_with(&ops::Backend::silu_mul_quantize)),
                         backend_name);
INSTANTIATE_TEST_SUITE_P(backends, LinearPairTest,
                         testing::ValuesIn(backends_with(&ops::Backend::linear_pair)),
                         backend_name);

TEST_P(RmsNormQuantizeTest, equals_the_norm_and_the_quantisation) {
  for (const int64_t tokens : kFusedTokens)
    for (const int64_t dim : {576, 61}) {
      ref::Random random(static_cast<uint64_t>(tokens + dim));
      const DeviceTensor x = upload(random.normal(act(), {tokens, dim + 3}, 2.0));
      const DeviceTensor weight = upload(random.normal(DType::kBf16, {dim}));
      const HostTensor before = random.normal(act(), {tokens, dim});
      const DeviceTensor residual = upload(before), expected_residual = upload(before);
      const DeviceTensor out = empty(act(), {tokens, dim}), expected = empty(act(), {tokens, dim});
      const auto norm = [&](const Tensor& sum, const Tensor& to) {
        return ops::RmsNormArgs{.x = x.view().slice(1, 2, dim + 2),
                                .weight = weight.view(),
                                .residual = sum,
                                .out = to};
      };
      ops::rms_norm(norm(expected_residual.view(), expected.view()), stream());
      const Rows rows = empty_rows(tokens, dim), alone = empty_rows(tokens, dim);
      ops::rms_norm_quantize({.norm = norm(residual.view(), out.view()), .quantised = rows.view()},
                             stream());
      EXPECT_EQ(bytes(residual.view()), bytes(expected_residual.view()));
      EXPECT_EQ(bytes(out.view()), bytes(expected.view()));
      expect_equal(rows, quantised(expected.view()));
      ops::rms_norm(norm({}, expected.view()), stream());
      ops::rms_norm_quantize({.norm = norm({}, {}), .quantised = alone.view()}, stream());
      expect_equal(alone, quantised(expected.view()));
    }
}

// Widths of V2 and V3, of which a GPU gives few rows to several blocks each; with a NaN in one row.
TEST_P(RmsNormQuantizeTest, rows_do_not_depend_on_the_batch) {
  constexpr int64_t kRows = 9;
  constexpr int64_t kCuts[] = {0, 1, 3, 6, kRows};
  for (const DType dtype : {DType::kF32, DType::kBf16})
    for (const int64_t dim : {5120, 7168}) {
      ref::Random random(static_cast<uint64_t>(dim));
      HostTensor rows = random.normal(act(), {kRows, dim}, 2.0);
      rows.at(1, 4000) = std::nan("");
      const DeviceTensor x = upload(rows), weight = upload(random.normal(dtype, {dim}));
      const HostTensor before = random.normal(act(), {kRows, dim});
      const DeviceTensor residual = upload(before), out = empty(act(), {kRows, dim});
      const DeviceTensor residual_of_parts = upload(before),
                         out_of_parts = empty(act(), {kRows, dim});
      const Rows q = empty_rows(kRows, dim), q_of_parts = empty_rows(kRows, dim);
      const auto run = [&](const Tensor& sum, const Tensor& to, const ops::Activation& quantised,
                           int64_t begin, int64_t end) {
        ops::rms_norm_quantize({.norm = {.x = x.view().slice(0, begin, end),
                                         .weight = weight.view(),
                                         .residual = sum.slice(0, begin, end),
                                         .out = to.slice(0, begin, end)},
                                .quantised = quantised.rows(begin, end)},
                               stream());
      };
      run(residual.view(), out.view(), q.view(), 0, kRows);
      for (size_t i = 0; i + 1 < std::size(kCuts); ++i)
        run(residual_of_parts.view(), out_of_parts.view(), q_of_parts.view(), kCuts[i],
            kCuts[i + 1]);
      EXPECT_EQ(bytes(residual.view()), bytes(residual_of_parts.view()));
      EXPECT_EQ(bytes(out.view()), bytes(out_of_parts.view()));
      expect_equal(q, q_of_parts);
      // Over its input.
      const Rows q_over = empty_rows(1, dim);
      const DeviceTensor over = upload(rows);
      const Tensor row = over.view().slice(0, 0, 1);
      const ops::RmsNormArgs norm{.x = row, .weight = weight.view(), .residual = {}, .out = row};
      ops::rms_norm(norm, stream());
      ops::rms_norm_quantize({.norm = {.x = x.view().slice(0, 0, 1),
                                       .weight = weight.view(),
                                       .residual = {},
                                       .out = out.view().slice(0, 0, 1)},
                              .quantised = q_over.view()},
                             stream());
      EXPECT_EQ(bytes(row), bytes(out.view().slice(0, 0, 1)));
    }
}

TEST_P(SiluMulQuantizeTest, equals_the_activation_and_the_quantisation) {
  for (const int64_t tokens : kFusedTokens)
    for (const int64_t inter : {256, 72}) {
      ref::Random random(static_cast<uint64_t>(tokens + inter));
      const DeviceTensor gate_up = upload(random.normal(act(), {tokens, 2, inter}, 2.0));
      const DeviceTensor expected = empty(act(), {tokens, inter});
      ops::silu_mul({.gate_up = gate_up.view(), .out = expected.view()}, stream());
      const Rows rows = empty_rows(tokens, inter);
      ops::silu_mul_quantize({.gate_up = gate_up.view(), .quantised = rows.view()}, stream());
      expect_equal(rows, quantised(expected.view()));
    }
}

TEST_P(FusedTest, linear_of_quantised_rows_equals_the_quantisation_inside_it) {
  for (const int64_t tokens : kFusedTokens)
    for (const int64_t in : {512, 200}) {
      ref::Random random(static_cast<uint64_t>(tokens + in));
      HostTensor rows = random.normal(act(), {tokens, in});
      if (tokens > 2) rows.at(2, 7) = std::nan("");
      const DeviceTensor x = upload(rows);
      const DeviceWeight weight = upload_weight(random, DType::kF8E4M3, {133, in});
      const HostTensor before = random.normal(act(), {tokens, 133});
      const DeviceTensor out = upload(before), expected = upload(before);
      const Rows q = quantised(x.view());
      const auto run = [&](const ops::Activation& input, const Tensor& to) {
        ops::linear({.x = input, .weight = weight.view(), .accumulate = true, .out = to}, stream());
      };
      run(x.view(), expected.view());
      run(q.view(), out.view());
      // A NaN has more than one pattern of bits.
      const HostTensor a = download(out.view()), e = download(expected.view());
      for (size_t i = 0; i < a.values.size(); ++i)
        EXPECT_TRUE(a.values[i] == e.values[i] ||
                    (std::isnan(a.values[i]) && std::isnan(e.values[i])))
            << i;
    }
}

TEST_P(LinearPairTest, equals_two_products) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
    if (!backend().supports("linear_pair", dtype)) continue;
    for (const int64_t tokens : kFusedTokens) {
      ref::Random random(static_cast<uint64_t>(tokens));
      const DeviceTensor x = upload(random.normal(act(), {tokens, 300}));
      const DeviceWeight a = upload_weight(random, dtype, {192, 300});
      const DeviceWeight b = upload_weight(random, dtype, {75, 300});
      const DeviceTensor out_a = empty(act(), {tokens, 192}),
                         expected_a = empty(act(), {tokens, 192});
      const DeviceTensor out_b = empty(act(), {tokens, 80}),
                         expected_b = empty(act(), {tokens, 80});
      const auto part = [](const DeviceTensor& t) { return t.view().slice(1, 2, 77); };
      ops::linear({.x = x.view(), .weight = a.view(), .out = expected_a.view()}, stream());
      ops::linear({.x = x.view(), .weight = b.view(), .out = part(expected_b)}, stream());
      ops::linear_pair({.x = x.view(),
                        .a = {.weight = a.view(), .out = out_a.view()},
                        .b = {.weight = b.view(), .out = part(out_b)}},
                       stream());
      EXPECT_EQ(bytes(out_a.view()), bytes(expected_a.view())) << tensor::dtype_name(dtype);
      EXPECT_EQ(bytes(out_b.view()), bytes(expected_b.view())) << tensor::dtype_name(dtype);
    }
  }
}

class FusedExpertsTest : public FusedTest {
 protected:
  static constexpr int64_t kHidden = 200, kInter = 72, kExperts = 7, kPerToken = 3;

  struct Inputs {
    DeviceTensor x, ids, weights;
    DeviceWeight gate_up, down;
    ops::MoeExpertsArgs args(const Tensor& out) const {
      return {.x = x.view(),
              .ids = ids.view(),
              .weights = weights.view(),
              .gate_up = gate_up.view(),
              .down = down.view(),
              .out = out};
    }
  };
  struct Sizes {
    int64_t hidden, inter, shared;
  };
  // Odd ones, some that divide into aligned experts and scale blocks, a shared width that does not divide.
  static constexpr Sizes kSharedSizes[] = {
      {kHidden, kInter, 2 * kInter}, {384, 256, 256}, {256, 128, 384}, {256, 128, 192}};

  struct SharedInputs {
    Inputs routed;
    DeviceWeight up, down;
    ops::MoeExpertsSharedArgs args(const Tensor& out) const {
      return {.experts = routed.args(out), .shared_gate_up = up.view(), .shared_down = down.view()};
    }
    ops::MoeExpertsSharedArgs rows(const Tensor& out, int64_t begin, int64_t end) const {
      ops::MoeExpertsSharedArgs all = args(out);
      all.experts.x = all.experts.x.rows(begin, end);
      all.experts.ids = all.experts.ids.slice(0, begin, end);
      all.experts.weights = all.experts.weights.slice(0, begin, end);
      all.experts.out = out.slice(0, begin, end);
      return all;
    }
  };
  SharedInputs make_shared_inputs(DType dtype, const Sizes& sizes, int64_t tokens) {
    ref::Random random(static_cast<uint64_t>(tokens + sizes.inter));
    return {.routed = make_inputs(random, dtype, tokens, sizes.hidden, sizes.inter),
            .up = upload_weight(random, dtype, {2, sizes.shared, sizes.hidden}),
            .down = upload_weight(random, dtype, {sizes.hidden, sizes.shared})};
  }
  void run_parts(const SharedInputs& in, const Tensor& out) {
    const int64_t tokens = out.dim(0), width = in.down.data.view().dim(1);
    const DeviceTensor gate_up = empty(act(), {tokens, 2, width});
    const DeviceTensor gated = empty(act(), {tokens, width});
    for (int64_t half = 0; half < 2; ++half) {
      const ops::Weight w = in.up.view();
      const Tensor rows = gate_up.view().reshape({tokens, 2 * width});
      ops::linear(
          {.x = in.routed.x.view(),
           .weight = {.data = w.data[half], .scale = w.scale.is_null() ? Tensor() : w.scale[half]},
           .out = rows.slice(1, half * width, (half + 1) * width)},
          stream());
    }
    ops::silu_mul({.gate_up = gate_up.view(), .out = gated.view()}, stream());
    ops::linear({.x = gated.view(), .weight = in.down.view(), .out = out}, stream());
    ops::MoeExpertsArgs routed = in.routed.args(out);
    routed.accumulate = true;
    ops::moe_experts(routed, stream());
  }

  Inputs make_inputs(ref::Random& random, DType dtype, int64_t tokens, int64_t hidden = kHidden,
                     int64_t inter = kInter) {
    HostTensor ids = random.integers(DType::kI32, {tokens, kPerToken}, 0, kExperts);
    for (int64_t t = 3; t < tokens; t += 5) ids.at(t, 1) = -1;
    return {.x = upload(random.normal(act(), {tokens, hidden})),
            .ids = upload(ids),
            .weights = upload(random.uniform(DType::kF32, {tokens, kPerToken}, 0.1, 1)),
            .gate_up = upload_weight(random, dtype, {kExperts, 2, inter, hidden}),
            .down = upload_weight(random, dtype, {kExperts, hidden, inter})};
  }
};

// The parts round gate, up, the hidden vector and the shared sum to bf16, the fused operator need not.
constexpr Bounds kSharedBounds{.f32 = {},
                               .bf16 = {.abs = 6e-2, .rel = 3e-2, .one_minus_cosine = 1e-4}};
// And a hidden value at the edge of two FP8 neighbours may fall to either.
constexpr Bounds kSharedFp8Bounds{
    .f32 = {}, .bf16 = {.abs = 2.5e-1, .rel = 5e-2, .one_minus_cosine = 1e-3, .rare = 5e-3}};

INSTANTIATE_TEST_SUITE_P(backends, FusedExpertsTest, testing::ValuesIn(tested_backends()),
                         backend_name);
class SharedExpertsTest : public FusedExpertsTest {
 protected:
  static constexpr int64_t kDecodes = 8;  // what every backend takes
  bool takes(const SharedInputs& in, const DeviceTensor& out) {
    return ops::takes_moe_experts_shared(in.args(out.view()), stream());
  }
  // Rows that come in pieces have the bits of all of them.
  void expect_rows_alike(DType dtype, const Sizes& sizes, const std::vector<int64_t>& cuts) {
    SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << " " << sizes.hidden << "x"
                                    << sizes.inter << ", " << cuts.back() << " tokens");
    const SharedInputs in = make_shared_inputs(dtype, sizes, cuts.back());
    const DeviceTensor out = empty(act(), {cuts.back(), sizes.hidden});
    const DeviceTensor pieces = empty(act(), {cuts.back(), sizes.hidden});
    if (!takes(in, out)) return;
    ops::moe_experts_shared(in.args(out.view()), stream());
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      ops::moe_experts_shared(in.rows(pieces.view(), cuts[i], cuts[i + 1]), stream());
    EXPECT_EQ(bytes(out.view()), bytes(pieces.view()));
  }
};
INSTANTIATE_TEST_SUITE_P(backends, SharedExpertsTest,
                         testing::ValuesIn(backends_with(&ops::Backend::moe_experts_shared)),
                         backend_name);

TEST_P(FusedExpertsTest, experts_of_quantised_rows_equal_the_quantisation_inside_them) {
  for (const int64_t tokens : kFusedTokens) {
    ref::Random random(static_cast<uint64_t>(tokens));
    const Inputs in = make_inputs(random, DType::kF8E4M3, tokens);
    const DeviceTensor out = empty(act(), {tokens, kHidden});
    const DeviceTensor expected = empty(act(), {tokens, kHidden});
    const Rows q = quantised(in.x.view());
    ops::MoeExpertsArgs args = in.args(out.view());
    args.x = q.view();
    ops::moe_experts(args, stream());
    ops::moe_experts(in.args(expected.view()), stream());
    EXPECT_EQ(bytes(out.view()), bytes(expected.view())) << tokens << " tokens";
  }
}

TEST_P(SharedExpertsTest, equals_the_shared_ffn_and_the_routed_experts) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3})
    for (const Sizes& sizes : kSharedSizes)
      for (const int64_t tokens : {int64_t{0}, int64_t{1}, kDecodes, int64_t{61}, int64_t{150}}) {
        SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << ", " << tokens
                                        << " tokens, " << sizes.hidden << "x" << sizes.inter);
        const SharedInputs in = make_shared_inputs(dtype, sizes, tokens);
        const DeviceTensor out = empty(act(), {tokens, sizes.hidden});
        const DeviceTensor expected = empty(act(), {tokens, sizes.hidden});
        EXPECT_TRUE(takes(in, out) || tokens > kDecodes);
        if (!takes(in, out)) continue;
        run_parts(in, expected.view());
        ops::moe_experts_shared(in.args(out.view()), stream());
        if (act() == DType::kF32) {
          EXPECT_EQ(bytes(out.view()), bytes(expected.view()));
        } else {
          expect_close(download(out.view()), download(expected.view()),
                       dtype == DType::kF8E4M3 ? kSharedFp8Bounds : kSharedBounds);
        }
      }
}

TEST_P(SharedExpertsTest, rows_do_not_depend_on_the_batch) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3})
    for (const Sizes& sizes : kSharedSizes) {
      expect_rows_alike(dtype, sizes, {0, 1, 3, kDecodes / 2, kDecodes / 2 + 2, kDecodes});
      expect_rows_alike(dtype, sizes, {0, kDecodes + 1, 40, 64});
      expect_rows_alike(dtype, sizes, {0, kDecodes + 1, 100, 250});
    }
}

}  // namespace
}  // namespace fathom::ops_test
