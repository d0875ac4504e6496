// linear, linear_pair and moe_experts with i4x2 weights: pairs of integers of 4 bits, whose scales are of 128 channels
// of one output, and rows quantised as for f8 weights.

#include <cmath>

#include "ops/linear.h"
#include "ops/quantize_fp8.h"
#include "tests/ops/quantised_experts.h"

namespace fathom::ops_test {
namespace {

std::vector<TestedBackend> backends_with_i4() {
  std::vector<TestedBackend> backends = tested_backends();
  std::erase_if(backends, [](const TestedBackend& tested) {
    return !tested.backend->supports("linear", DType::kI4x2);
  });
  return backends;
}

class Int4Test : public ProductTest {
 protected:
  std::vector<uint8_t> product(const HostTensor& x, const DeviceWeight& weight) {
    const DeviceTensor device_x = upload(x);
    const DeviceTensor out = empty(act(), {x.dim(0), weight.view().data.dim(0)});
    ops::linear({.x = device_x.view(), .weight = weight.view(), .out = out.view()}, stream());
    return bytes(out.view());
  }
};
INSTANTIATE_TEST_SUITE_P(backends, Int4Test, testing::ValuesIn(backends_with_i4()), backend_name);

constexpr Bounds kInt4Bounds{.f32 = {.abs = 1e-5, .rel = 1e-5, .one_minus_cosine = 1e-10},
                             .bf16 = {}};

struct Int4Shape {
  int64_t in, out;
};
// Cuts of the published shapes, and odd ones: parts of a vector of every width, a block and a pair.
const std::vector<Int4Shape> kInt4Shapes = {{7168, 130}, {2048, 71}, {512, 256}, {384, 1},
                                            {300, 129},  {130, 3},   {128, 5},   {70, 69},
                                            {62, 1},     {2, 61}};

TEST_P(Int4Test, products_match_float64) {
  for (const auto& [in, out] : kInt4Shapes) {
    ref::Random random(static_cast<uint64_t>(in * 1000 + out));
    const ref::HostWeight weight = ref::random_i4_weight(random, {out, in});
    const DeviceWeight device_weight = upload_weight(weight);
    for (const int64_t tokens : {0, 1, 2, 3, 7, 40}) {
      SCOPED_TRACE(testing::Message() << tokens << "x" << in << "x" << out);
      const HostTensor x = random.normal(act(), {tokens, in});
      const DeviceTensor device_x = upload(x), y = empty(act(), {tokens, out});
      ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = y.view()},
                  stream());
      expect_close(download(y.view()), ref::linear(x, weight), kInt4Bounds);
    }
  }
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
      ASSERT_NEAR(actual.at(k, pair), weight.data.at(pair, k) * one, 1e-6) << k << " " << pair;
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
  ref::Random random(11);
  const HostTensor x = random.normal(act(), {69, 300}), before = random.normal(act(), {69, 200});
  const ref::HostWeight weight = ref::random_i4_weight(random, {131, 260});
  const DeviceTensor device_x = upload(x), device_out = upload(before);
  const DeviceWeight device_weight = upload_weight(weight);
  ops::linear({.x = device_x.view().slice(1, 40, 300),
               .weight = device_weight.view(),
               .accumulate = true,
               .out = device_out.view().slice(1, 5, 136)},
              stream());
  HostTensor expected = before;
  const HostTensor product = ref::linear(x.columns(40, 300), weight);
  for (int64_t t = 0; t < 69; ++t)
    for (int64_t o = 0; o < 131; ++o) expected.at(t, 5 + o) += product.at(t, o);
  expect_close(download(device_out.view()), expected, kInt4Bounds);
}

TEST_P(Int4Test, rows_do_not_depend_on_the_batch_nor_on_garbage_in_it) {
  ref::Random random(13);
  HostTensor x = random.normal(act(), {130, 400});
  const DeviceWeight weight = upload_weight(ref::random_i4_weight(random, {333, 400}));
  const std::vector<uint8_t> all = product(x, weight);
  const size_t row_bytes = all.size() / 130;
  for (const auto& [begin, end] :
       {std::pair{0, 1}, {129, 130}, {63, 65}, {5, 12}, {20, 50}, {1, 128}}) {
    const std::vector<uint8_t> some = product(x.rows(begin, end), weight);
    EXPECT_TRUE(
        std::equal(some.begin(), some.end(), all.begin() + static_cast<int64_t>(row_bytes) * begin))
        << "rows " << begin << " to " << end;
  }
  for (const double garbage : kGarbage) {
    x.at(7, 399) = ref::round_to(act(), garbage);
    std::vector<uint8_t> dirty = product(x, weight);
    for (size_t i = 0; i < all.size(); ++i)
      if (i / row_bytes == 7) dirty[i] = all[i];
    EXPECT_TRUE(dirty == all) << garbage;
  }
}

TEST_P(Int4Test, a_pair_is_its_two_products) {
  for (const int64_t tokens : {1, 9, 100}) {
    ref::Random random(15);
    const HostTensor x = random.normal(act(), {tokens, 300});
    const DeviceWeight a = upload_weight(ref::random_i4_weight(random, {133, 300}));
    const DeviceWeight b = upload_weight(ref::random_i4_weight(random, {70, 300}));
    const DeviceTensor device_x = upload(x);
    const DeviceTensor out_a = empty(act(), {tokens, 133}), out_b = empty(act(), {tokens, 70});
    ops::linear_pair(
        {.x = device_x.view(), .a = {a.view(), out_a.view()}, .b = {b.view(), out_b.view()}},
        stream());
    EXPECT_TRUE(bytes(out_a.view()) == product(x, a)) << tokens;
    EXPECT_TRUE(bytes(out_b.view()) == product(x, b)) << tokens;
  }
}

class Int4ExpertsTest : public QuantisedExpertsTest {};
INSTANTIATE_TEST_SUITE_P(backends, Int4ExpertsTest, testing::ValuesIn(backends_with_i4()),
                         backend_name);

// A hidden value at the edge of two e4m3 values may fall to either.
constexpr Bounds kInt4ExpertBounds{.f32 = {.abs = 5e-2, .rel = 1e-3, .one_minus_cosine = 1e-4},
                                   .bf16 = {}};

TEST_P(Int4ExpertsTest, match_float64_and_do_not_depend_on_the_batch) {
  for (const auto& [tokens, hidden, inter] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 512, 256}, {69, 200, 140}, {130, 62, 34}}) {
    SCOPED_TRACE(testing::Message() << tokens << "x" << hidden << "x" << inter);
    check(make_inputs(tokens, hidden, inter, ref::random_i4_weight), kInt4ExpertBounds);
  }
}

}  // namespace
}  // namespace fathom::ops_test
