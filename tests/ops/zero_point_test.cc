// linear, linear_pair and moe_experts with u4x2 weights: pairs of integers of 4 bits, a scale and a zero point for each
// 32, 64 or 128 channels of one output, and rows of x as they come.

#include "tests/ops/quantised_products.h"

namespace fathom::ops_test {
namespace {

constexpr int64_t kGroups[] = {32, 64, 128};

class ZeroPointTest : public QuantisedProductTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ZeroPointTest);
INSTANTIATE_TEST_SUITE_P(backends, ZeroPointTest,
                         testing::ValuesIn(backends_with_weights(DType::kU4x2)), backend_name);

constexpr Bounds kZeroPointBounds{.f32 = {.abs = 1e-5, .rel = 1e-5, .one_minus_cosine = 1e-10},
                                  .bf16 = {.abs = 2e-2, .rel = 1e-2, .one_minus_cosine = 1e-4}};

auto weights_of(int64_t channels) {
  return [channels](ref::Random& random, std::vector<int64_t> shape) {
    return ref::random_u4_weight(random, channels, std::move(shape));
  };
}

// Cuts of the published shapes, odd numbers of outputs, one group and many.
TEST_P(ZeroPointTest, products_match_float64) {
  for (const int64_t channels : kGroups) {
    SCOPED_TRACE(channels);
    check_products({{7168, 130}, {1408, 71}, {512, 256}, {384, 1}, {128, 129}, {128, 5}},
                   weights_of(channels), kZeroPointBounds);
  }
  check_products({{10944, 33}, {1600, 37}, {64, 3}, {64, 128}}, weights_of(64), kZeroPointBounds);
  check_products({{32, 7}, {96, 33}, {1056, 40}}, weights_of(32), kZeroPointBounds);
}

// Each of the 256 pairs at each place of a group, against ones: exact, whatever scale and zero point.
TEST_P(ZeroPointTest, every_pair_has_its_values_in_order) {
  constexpr int64_t kIn = 128;
  HostTensor x(act(), {kIn, kIn});
  for (int64_t k = 0; k < kIn; ++k) x.at(k, k) = 1.0;
  ref::HostWeight weight{.data = HostTensor(DType::kU4x2, {256, kIn}),
                         .scale = HostTensor(DType::kF16, {256, 4})};
  for (int64_t pair = 0; pair < 256; ++pair) {
    for (int64_t k = 0; k < kIn; ++k)
      weight.data.at(pair, k) = static_cast<double>(pair >> (k % 2 * 4) & 15);
    for (int64_t group = 0; group < 2; ++group) {
      weight.scale.at(pair, group) = ref::round_to(
          DType::kF16, 0.001 * static_cast<double>(pair + 1) + static_cast<double>(group));
      weight.scale.at(pair, 2 + group) = static_cast<double>((pair + 7 * group) % 16);
    }
  }
  const DeviceWeight device_weight = upload_weight(weight);
  for (const int64_t rows : {int64_t{1}, kIn}) {
    const DeviceTensor device_x = upload(x.rows(0, rows)), y = empty(act(), {rows, 256});
    ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = y.view()}, stream());
    const HostTensor actual = download(y.view()), values = ref::dequantize(weight);
    for (int64_t k = 0; k < rows; ++k)
      for (int64_t pair = 0; pair < 256; ++pair)
        ASSERT_EQ(actual.at(k, pair), ref::round_to(act(), values.at(pair, k))) << k << " " << pair;
  }
}

TEST_P(ZeroPointTest, adds_to_the_output_when_told_and_takes_strided_rows) {
  check_strided_and_added(40, 256, weights_of(64), kZeroPointBounds);
}

TEST_P(ZeroPointTest, rows_do_not_depend_on_the_batch_nor_on_garbage_in_it) {
  check_rows_alone(weights_of(32), 1600);
  check_rows_alone(weights_of(64), 1600);
}

TEST_P(ZeroPointTest, a_pair_is_its_two_products) { check_pair(weights_of(64), 320); }

TEST_P(ZeroPointTest, a_scale_must_fit_the_groups) {
  ref::Random random(3);
  const DeviceTensor x = upload(random.normal(act(), {2, 128})), y = empty(act(), {2, 4});
  const DeviceTensor data = upload(ref::random_u4_weight(random, 64, {4, 128}).data);
  const auto multiply = [&](const DeviceTensor& scale) {
    ops::linear({.x = x.view(), .weight = {data.view(), scale.view()}, .out = y.view()}, stream());
  };
  const DeviceTensor floats = empty(DType::kF32, {4, 4}), few_rows = empty(DType::kF16, {3, 4});
  EXPECT_DEATH(multiply(floats), "must be f16");
  EXPECT_DEATH(multiply(few_rows), "axis 0: must be 4, got 3");
  for (const int64_t columns : {1, 3, 6, 16}) {
    const DeviceTensor scale = empty(DType::kF16, {4, columns});
    EXPECT_DEATH(multiply(scale),
                 "must have a scale and a zero point for each 32, 64 or 128 of 128");
  }
}

class ZeroPointExpertsTest : public QuantisedExpertsTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ZeroPointExpertsTest);
INSTANTIATE_TEST_SUITE_P(backends, ZeroPointExpertsTest,
                         testing::ValuesIn(backends_with_weights(DType::kU4x2)), backend_name);

// On a GPU hidden values are rounded to bf16, and so are the weights of more than 128 tokens.
constexpr Bounds kZeroPointExpertBounds{
    .f32 = kZeroPointBounds.f32, .bf16 = {.abs = 1.6e-1, .rel = 2e-2, .one_minus_cosine = 1e-4}};

TEST_P(ZeroPointExpertsTest, match_float64_and_do_not_depend_on_the_batch) {
  for (const auto& [tokens, hidden, inter, channels] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t>{1, 512, 256, 128},
        {69, 192, 128, 64},
        {130, 64, 96, 32}}) {
    SCOPED_TRACE(testing::Message() << tokens << "x" << hidden << "x" << inter);
    check(make_inputs(tokens, hidden, inter, weights_of(channels)), kZeroPointExpertBounds);
  }
}

}  // namespace
}  // namespace fathom::ops_test
