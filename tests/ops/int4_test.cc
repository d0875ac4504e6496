// linear, linear_pair and moe_experts with i4x2 weights: pairs of integers of 4 bits, whose scales are of 128 channels
// of one output, and rows quantised as for f8 weights.

#include "ops/quantize_fp8.h"
#include "tests/ops/quantised_products.h"

namespace fathom::ops_test {
namespace {

class Int4Test : public QuantisedProductTest {};
INSTANTIATE_TEST_SUITE_P(backends, Int4Test, testing::ValuesIn(backends_with_weights(DType::kI4x2)),
                         backend_name);

constexpr Bounds kInt4Bounds{.f32 = {.abs = 1e-5, .rel = 1e-5, .one_minus_cosine = 1e-10},
                             .bf16 = {.abs = 2e-2, .rel = 1e-2, .one_minus_cosine = 1e-4}};

// Cuts of the published shapes, and odd ones: parts of a vector of every width, a block and a pair.
TEST_P(Int4Test, products_match_float64) {
  check_products({{7168, 130},
                  {2048, 71},
                  {512, 256},
                  {384, 1},
                  {300, 129},
                  {130, 3},
                  {128, 5},
                  {70, 69},
                  {62, 1},
                  {2, 61}},
                 ref::random_i4_weight, kInt4Bounds);
}

// Each of the 256 pairs at each place of a vector, against ones: the sum of a row is its values'.
TEST_P(Int4Test, every_pair_has_its_values_in_order) {
  constexpr int64_t kIn = 128;
  HostTensor x(act(), {kIn, kIn});
  for (int64_t k = 0; k < kIn; ++k) x.at(k, k) = 1.0;
  ref::HostWeight weight{.data = HostTensor(DType::kI4x2, {256, kIn}),
                         .scale = HostTensor(DType::kF32, {256, 1}, 1.0)};
  for (int64_t pair = 0; pair < 256; ++pair)
    for (int64_t k = 0; k < kIn; ++k)
      weight.data.at(pair, k) = static_cast<double>((pair >> (k % 2 * 4) & 15) - 8);
  const DeviceWeight device_weight = upload_weight(weight);
  const DeviceTensor device_x = upload(x), y = empty(act(), {kIn, 256});
  ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = y.view()}, stream());
  const HostTensor actual = download(y.view());
  const double one = 448.0 * static_cast<double>(1.0f / 448.0f);  // as a row of e4m3 values has it
  for (int64_t k = 0; k < kIn; ++k)
    for (int64_t pair = 0; pair < 256; ++pair)
      ASSERT_NEAR(actual.at(k, pair), weight.data.at(pair, k) * one,
                  act() == DType::kF32 ? 1e-6 : 1e-2)
          << k << " " << pair;
}

TEST_P(Int4Test, rows_that_come_quantised_give_the_same_bits) {
  ref::Random random(5);
  const HostTensor x = random.normal(act(), {45, 400});
  const DeviceWeight weight = upload_weight(ref::random_i4_weight(random, {77, 400}));
  const DeviceTensor device_x = upload(x), out = empty(act(), {45, 77});
  const DeviceTensor q = empty(DType::kF8E4M3, {45, 400}), scale = empty(DType::kF32, {45, 4});
  ops::quantize_fp8({.x = device_x.view(), .q = q.view(), .scale = scale.view()}, stream());
  ops::linear({.x = {q.view(), scale.view()}, .weight = weight.view(), .out = out.view()},
              stream());
  EXPECT_TRUE(bytes(out.view()) == product(x, weight));
}

TEST_P(Int4Test, adds_to_the_output_when_told_and_takes_strided_rows) {
  check_strided_and_added(40, 260, ref::random_i4_weight, kInt4Bounds);
}

TEST_P(Int4Test, rows_do_not_depend_on_the_batch_nor_on_garbage_in_it) {
  check_rows_alone(ref::random_i4_weight);
}

TEST_P(Int4Test, a_pair_is_its_two_products) { check_pair(ref::random_i4_weight); }

class Int4ExpertsTest : public QuantisedExpertsTest {};
INSTANTIATE_TEST_SUITE_P(backends, Int4ExpertsTest,
                         testing::ValuesIn(backends_with_weights(DType::kI4x2)), backend_name);

// A hidden value at the edge of two e4m3 values may fall to either.
constexpr Bounds kInt4ExpertBounds{
    .f32 = {.abs = 5e-2, .rel = 1e-3, .one_minus_cosine = 1e-4},
    .bf16 = {.abs = 5e-2, .rel = 5e-2, .one_minus_cosine = 1e-3, .rare = 5e-3}};

// Few tokens, many of one expert, and what lies in between, where rows are multiples of 16 bytes.
TEST_P(Int4ExpertsTest, match_float64_beside_every_limit_of_tokens) {
  for (const int64_t tokens : {1, 4, 5, 7, 8, 64, 129}) {
    SCOPED_TRACE(testing::Message() << tokens);
    check(make_inputs(tokens, 1056, 160, ref::random_i4_weight), kInt4ExpertBounds);
  }
}

TEST_P(Int4ExpertsTest, match_float64_and_do_not_depend_on_the_batch) {
  for (const auto& [tokens, hidden, inter] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 512, 256}, {69, 200, 140}, {130, 62, 34}}) {
    SCOPED_TRACE(testing::Message() << tokens << "x" << hidden << "x" << inter);
    check(make_inputs(tokens, hidden, inter, ref::random_i4_weight), kInt4ExpertBounds);
  }
}

}  // namespace
}  // namespace fathom::ops_test
