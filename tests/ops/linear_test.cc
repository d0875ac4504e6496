// linear, quantize_fp8.

#include <cmath>

#include "ops/linear.h"
#include "ops/quantize_fp8.h"
#include "tests/ops/product_fixture.h"

namespace fathom::ops_test {
namespace {

class LinearTest : public ProductTest {
 protected:
  // Why a test is skipped.
  std::string lacks(const std::string& what) const {
    return GetParam().name + " has no " + what + "; to run it: a backend that has it";
  }
};
INSTANTIATE_TEST_SUITE_P(backends, LinearTest, testing::ValuesIn(tested_backends()), backend_name);

// Weights are scaled so that outputs are near 1.
constexpr Bounds kLinearBounds{.f32 = {.abs = 1e-5, .rel = 1e-5, .one_minus_cosine = 1e-10},
                               .bf16 = {.abs = 2e-2, .rel = 1e-2, .one_minus_cosine = 1e-4}};

struct LinearShape {
  int64_t in, out;
};
// Cuts of the published shapes (q_a + kv_a, o_proj, experts, V2-Lite's kv_a) and odd ones.
const std::vector<LinearShape> kLinearShapes = {{7168, 130}, {2048, 576}, {1536, 192},
                                                {512, 256},  {256, 384},  {2046, 61},
                                                {69, 69},    {61, 1},     {1, 61}};

TEST_P(LinearTest, matches_float64_for_every_weight_type_and_number_of_tokens) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
    if (!backend().supports("linear", dtype)) continue;
    for (const LinearShape& shape : kLinearShapes) {
      ref::Random random(static_cast<uint64_t>(shape.in * 1000 + shape.out));
      const ref::HostWeight weight = ref::random_weight(random, dtype, {shape.out, shape.in});
      const DeviceWeight device_weight = upload_weight(weight);
      for (const int64_t tokens : {0, 1, 2, 7, 69}) {
        SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << " " << tokens << "x"
                                        << shape.in << "x" << shape.out);
        const HostTensor x = random.normal(act(), {tokens, shape.in});
        const DeviceTensor device_x = upload(x), out = empty(act(), {tokens, shape.out});
        ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = out.view()},
                    stream());
        expect_close(download(out.view()), ref::linear(x, weight), kLinearBounds);
      }
    }
  }
}

TEST_P(LinearTest, adds_to_the_output_when_told_and_takes_strided_rows) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
    if (!backend().supports("linear", dtype)) continue;
    ref::Random random(11);
    const HostTensor x = random.normal(act(), {69, 300}), before = random.normal(act(), {69, 200});
    const ref::HostWeight weight = ref::random_weight(random, dtype, {131, 261});
    const DeviceTensor device_x = upload(x), device_out = upload(before);
    const DeviceWeight device_weight = upload_weight(weight);
    ops::linear({.x = device_x.view().slice(1, 39, 300),
                 .weight = device_weight.view(),
                 .accumulate = true,
                 .out = device_out.view().slice(1, 5, 136)},
                stream());
    HostTensor expected = before;
    const HostTensor product = ref::linear(x.columns(39, 300), weight);
    for (int64_t t = 0; t < 69; ++t) {
      for (int64_t o = 0; o < 131; ++o) expected.at(t, 5 + o) += product.at(t, o);
    }
    expect_close(download(device_out.view()), expected, kLinearBounds);
  }
}

TEST_P(LinearTest, writes_float32_logits) {
  ref::Random random(12);
  const HostTensor x = random.normal(act(), {3, 512});
  const ref::HostWeight weight = ref::random_weight(random, DType::kBf16, {2046, 512});
  if (!backend().supports("linear", DType::kBf16)) GTEST_SKIP() << lacks("bf16 weights");
  const DeviceTensor device_x = upload(x), logits = empty(DType::kF32, {3, 2046});
  const DeviceWeight device_weight = upload_weight(weight);
  ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = logits.view()},
              stream());
  expect_close(download(logits.view()), ref::linear(x, weight), kLinearBounds);
}

TEST_P(LinearTest, rows_do_not_depend_on_the_batch) {
  std::vector<LinearShape> shapes = {{1100, 333}, {2304, 344}};
  // Enough rows of weights for the GPU's kernel of many tokens, too many for the plain loops of the CPU.
  if (act() == DType::kBf16) shapes.push_back({1536, 5200});
  for (const RowClass& row_class : row_classes())
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3})
      for (const auto& [in, out] : shapes) {
        if (!backend().supports("linear", dtype)) continue;
        ref::Random random(13);
        const DeviceTensor x = upload(random.normal(act(), {row_class.rows, in}));
        const DeviceWeight weight = upload_weight(ref::random_weight(random, dtype, {out, in}));
        const DeviceTensor all = empty(act(), {row_class.rows, out});
        ops::linear({.x = x.view(), .weight = weight.view(), .out = all.view()}, stream());
        for (const auto& [begin, end] : row_class.parts) {
          const DeviceTensor some = empty(act(), {end - begin, out});
          ops::linear(
              {.x = x.view().slice(0, begin, end), .weight = weight.view(), .out = some.view()},
              stream());
          EXPECT_TRUE(bytes(some.view()) == bytes(all.view().slice(0, begin, end)))
              << tensor::dtype_name(dtype) << " " << in << "x" << out << " rows " << begin << " to "
              << end << " of " << row_class.rows;
        }
      }
}

TEST_P(LinearTest, garbage_in_other_rows_changes_no_bit) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3})
    for (const int64_t rows : {2, 8, 40}) {
      if (!backend().supports("linear", dtype)) continue;
      ref::Random random(15);
      HostTensor x = random.normal(act(), {rows, 300});
      const DeviceWeight weight = upload_weight(ref::random_weight(random, dtype, {130, 300}));
      const auto product = [&] {
        const DeviceTensor device_x = upload(x), out = empty(act(), {rows, 130});
        ops::linear({.x = device_x.view(), .weight = weight.view(), .out = out.view()}, stream());
        // The last rows are the garbage.
        return bytes(out.view().slice(0, 0, rows - rows / 2));
      };
      const std::vector<uint8_t> clean = product();
      for (const double garbage : kGarbage) {
        for (int64_t row = rows - rows / 2; row < rows; ++row)
          for (int64_t i = 0; i < 300; ++i) x.at(row, i) = ref::round_to(act(), garbage);
        EXPECT_TRUE(product() == clean)
            << tensor::dtype_name(dtype) << ", " << rows << " rows, " << garbage;
      }
    }
}

TEST_P(LinearTest, a_nan_in_one_row_stays_in_that_row) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
    if (!backend().supports("linear", dtype)) continue;
    ref::Random random(14);
    HostTensor x = random.normal(act(), {5, 200});
    x.at(2, 150) = std::nan("");
    const ref::HostWeight weight = ref::random_weight(random, dtype, {40, 200});
    const DeviceWeight device_weight = upload_weight(weight);
    const DeviceTensor device_x = upload(x), out = empty(act(), {5, 40});
    ops::linear({.x = device_x.view(), .weight = device_weight.view(), .out = out.view()},
                stream());
    const HostTensor actual = download(out.view());
    for (int64_t t = 0; t < 5; ++t) {
      for (int64_t o = 0; o < 40; ++o) EXPECT_EQ(std::isnan(actual.at(t, o)), t == 2) << t;
    }
  }
}

TEST_P(LinearTest, quantize_fp8_gives_exactly_the_values_and_scales_of_the_rule) {
  if (backend().quantize_fp8.run == nullptr) GTEST_SKIP() << lacks("quantize_fp8");
  for (const int64_t dim : {1, 61, 127, 128, 129, 576, 2046, 7168}) {
    for (const int64_t tokens : {0, 1, 69}) {
      SCOPED_TRACE(testing::Message() << tokens << "x" << dim);
      ref::Random random(static_cast<uint64_t>(dim));
      HostTensor x = random.normal(act(), {tokens, dim}, 3.0);
      if (tokens > 1) {
        for (int64_t i = 0; i < dim; ++i) x.at(1, i) = 0;  // the floor of the scale
        x.at(2, 0) = ref::round_to(act(), 1e30);
      }
      const DeviceTensor device_x = upload(x), q = empty(DType::kF8E4M3, {tokens, dim});
      const DeviceTensor scale = empty(DType::kF32, {tokens, (dim + 127) / 128});
      ops::quantize_fp8({.x = device_x.view(), .q = q.view(), .scale = scale.view()}, stream());
      const ref::Quantized expected = ref::quantize_fp8(x);
      EXPECT_EQ(download(q.view()).values, expected.q.values);
      EXPECT_EQ(download(scale.view()).values, expected.scale.values);
    }
  }
}

TEST_P(LinearTest, quantize_fp8_keeps_nan_and_infinity_visible) {
  if (backend().quantize_fp8.run == nullptr) GTEST_SKIP() << lacks("quantize_fp8");
  HostTensor x(act(), {2, 130}, 1.0);
  x.at(0, 3) = std::nan("");
  x.at(1, 129) = INFINITY;
  const DeviceTensor device_x = upload(x), q = empty(DType::kF8E4M3, {2, 130});
  const DeviceTensor scale = empty(DType::kF32, {2, 2});
  ops::quantize_fp8({.x = device_x.view(), .q = q.view(), .scale = scale.view()}, stream());
  const HostTensor values = download(q.view()), scales = download(scale.view());
  EXPECT_TRUE(std::isnan(values.at(0, 3)));
  EXPECT_EQ(values.at(0, 4), 448.0);
  EXPECT_TRUE(std::isnan(values.at(1, 129)));
  EXPECT_EQ(scales.at(1, 1), static_cast<double>(INFINITY));
  EXPECT_EQ(values.at(1, 0), 448.0);
}

}  // namespace
}  // namespace fathom::ops_test
