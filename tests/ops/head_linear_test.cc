// head_linear, and what FP8 costs it.

#include "ops/head_linear.h"

#include <cmath>
#include <cstdio>

#include "ops/gather_rows.h"
#include "ops/quantize_fp8.h"
#include "tests/ops/product_fixture.h"

namespace fathom::ops_test {
namespace {

class HeadLinearTest : public ProductTest {
 protected:
  void run(const Tensor& x, const ops::Weight& weight, const Tensor& out) {
    ops::head_linear({.x = x, .weight = weight, .out = out}, stream());
  }
};
INSTANTIATE_TEST_SUITE_P(backends, HeadLinearTest, testing::ValuesIn(tested_backends()),
                         backend_name);

constexpr DType kWeightTypes[] = {DType::kF32, DType::kBf16, DType::kF8E4M3};

// Weights are scaled so that outputs are near 1.
constexpr Bounds kBounds{.f32 = {.abs = 1e-5, .rel = 1e-5, .one_minus_cosine = 1e-10},
                         .bf16 = {.abs = 2e-2, .rel = 1e-2, .one_minus_cosine = 1e-4}};

struct HeadShape {
  int64_t in, out;
};

// Rows [begin, end) of each head.
HostTensor rows_of_heads(const HostTensor& t, int64_t begin, int64_t end) {
  HostTensor part(t.dtype, {t.dim(0), end - begin, t.dim(2)});
  for (int64_t h = 0; h < t.dim(0); ++h)
    for (int64_t row = begin; row < end; ++row)
      for (int64_t k = 0; k < t.dim(2); ++k) part.at(h, row - begin, k) = t.at(h, row, k);
  return part;
}

TEST_P(HeadLinearTest, multiplies_each_head_by_its_own_matrix) {
  for (const DType dtype : kWeightTypes) {
    ASSERT_TRUE(backend().supports("head_linear", dtype));
    for (const HeadShape& shape : {HeadShape{128, 512}, HeadShape{512, 128}, HeadShape{61, 69},
                                   HeadShape{1, 3}, HeadShape{200, 130}, HeadShape{129, 16}}) {
      // Heads of x, weight and out are parts of wider ones, as q_nope and W_UV are; FP8 blocks begin with them.
      const bool f8 = dtype == DType::kF8E4M3;
      const int64_t before = f8 ? 128 : 5, end = before + shape.out;
      ref::Random random(static_cast<uint64_t>(shape.in));
      const ref::HostWeight wide = ref::random_weight(random, dtype, {3, end, shape.in});
      const ref::HostWeight part{
          .data = rows_of_heads(wide.data, before, end),
          .scale = f8 ? rows_of_heads(wide.scale, 1, wide.scale.dim(1)) : HostTensor()};
      const DeviceWeight weight = upload_weight(wide);
      ops::Weight view{.data = weight.view().data.slice(1, before, end), .scale = {}};
      if (f8) view.scale = weight.view().scale.slice(1, 1, wide.scale.dim(1));
      for (const int64_t tokens : {0, 1, 9, 69, 131}) {
        SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << " " << tokens << "x"
                                        << shape.in << "x" << shape.out);
        const HostTensor x = random.normal(act(), {tokens, 3, shape.in + 7});
        const DeviceTensor device_x = upload(x), out = empty(act(), {tokens, 3, shape.out + 2});
        const Tensor out_part = out.view().slice(2, 1, shape.out + 1);
        run(device_x.view().slice(2, 0, shape.in), view, out_part);
        expect_close(download(out_part), ref::head_linear(x.columns(0, shape.in), part), kBounds);
      }
    }
  }
}

TEST_P(HeadLinearTest, of_one_head_in_fp8_is_linear_to_the_bit) {
  for (const auto& [in, out] : {HeadShape{128, 512}, HeadShape{300, 130}}) {
    for (const int64_t tokens : {1, 9, 130}) {
      ref::Random random(17);
      const DeviceTensor x = upload(random.normal(act(), {tokens, in}));
      const DeviceWeight weight =
          upload_weight(ref::random_weight(random, DType::kF8E4M3, {out, in}));
      const DeviceTensor expected = empty(act(), {tokens, out}), got = empty(act(), {tokens, out});
      // On CUDA the two may be taken by kernels of different classes beyond the fewest rows.
      if (!backend().batch_invariant && tokens > cuda::kMaxStreamedTokens) continue;
      ops::linear({.x = x.view(), .weight = weight.view(), .out = expected.view()}, stream());
      const ops::Weight view = weight.view();
      run(x.view().reshape({tokens, 1, in}),
          {.data = view.data.reshape({1, out, in}),
           .scale = view.scale.reshape({1, view.scale.dim(0), view.scale.dim(1)})},
          got.view().reshape({tokens, 1, out}));
      EXPECT_TRUE(bytes(got.view()) == bytes(expected.view())) << tokens << "x" << in;
    }
  }
}

TEST_P(HeadLinearTest, rows_do_not_depend_on_the_batch) {
  for (const RowClass& row_class : row_classes())
    for (const DType dtype : kWeightTypes)
      for (const auto& [in, out] : {HeadShape{128, 512}, HeadShape{512, 128}}) {
        ref::Random random(16);
        const DeviceTensor x = upload(random.normal(act(), {row_class.rows, 2, in}));
        const DeviceWeight weight = upload_weight(ref::random_weight(random, dtype, {2, out, in}));
        const DeviceTensor all = empty(act(), {row_class.rows, 2, out});
        run(x.view(), weight.view(), all.view());
        for (const auto& [begin, end] : row_class.parts) {
          const DeviceTensor some = empty(act(), {end - begin, 2, out});
          run(x.view().slice(0, begin, end), weight.view(), some.view());
          EXPECT_TRUE(bytes(some.view()) == bytes(all.view().slice(0, begin, end)))
              << tensor::dtype_name(dtype) << " " << in << "x" << out << " rows " << begin << " to "
              << end << " of " << row_class.rows;
        }
      }
}

TEST_P(HeadLinearTest, a_nan_stays_in_its_row_and_its_head) {
  for (const DType dtype : kWeightTypes)
    for (const int64_t tokens : {5, 20}) {
      ref::Random random(14);
      HostTensor x = random.normal(act(), {tokens, 3, 256});
      x.at(2, 1, 150) = std::nan("");
      const DeviceWeight weight = upload_weight(ref::random_weight(random, dtype, {3, 40, 256}));
      const DeviceTensor device_x = upload(x), out = empty(act(), {tokens, 3, 40});
      run(device_x.view(), weight.view(), out.view());
      const HostTensor actual = download(out.view());
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < 3; ++h)
          for (int64_t o = 0; o < 40; ++o)
            ASSERT_EQ(std::isnan(actual.at(t, h, o)), t == 2 && h == 1) << t << " " << h;
    }
}

// What a form costs, of a sample of the rows: |actual - expected| / |expected|, and 1 - cosine.
struct Cost {
  double error = 0, one_minus_cosine = 0;
};

Cost cost(const HostTensor& actual, const HostTensor& expected) {
  double difference = 0, a_a = 0, e_e = 0, a_e = 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double a = actual.values[i], e = expected.values[i];
    difference += (a - e) * (a - e);
    a_a += a * a, e_e += e * e, a_e += a * e;
  }
  return {std::sqrt(difference / e_e), 1 - a_e / std::sqrt(a_a * e_e)};
}

// Each of `outer` parts of the values so many times in turn: heads are the first axis or, with rows before them, the
// second.
HostTensor with_heads_repeated(const HostTensor& t, int64_t outer, int64_t times) {
  HostTensor all = t;
  all.shape[outer == 1 ? 0 : 1] *= times;
  all.values.clear();
  const int64_t size = static_cast<int64_t>(t.values.size()) / outer;
  for (int64_t i = 0; i < outer * times; ++i) {
    const auto from = t.values.begin() + i / times * size;
    all.values.insert(all.values.end(), from, from + size);
  }
  return all;
}

class HeadLinearAccuracyTest : public HeadLinearTest {
 protected:
  static constexpr int64_t kSampledRows = 8, kSampledHeads = 16;  // the others repeat them

  // rows [kSampledRows, heads, in]. Compared are the call's last rows, which begin with the first of `rows`.
  Cost measure(const DeviceTensor& rows, int64_t tokens, const DeviceWeight& weight,
               const HostTensor& expected) {
    const int64_t heads = rows.view().dim(1), in = rows.view().dim(2);
    std::vector<int32_t> places(static_cast<size_t>(tokens));
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int32_t>(i % kSampledRows);
    const DeviceTensor ids = upload({tokens}, places), x = empty(act(), {tokens, heads, in});
    ops::gather_rows({.x = rows.view().reshape({kSampledRows, heads * in}),
                      .rows = ids.view(),
                      .out = x.view().reshape({tokens, heads * in})},
                     stream());
    const DeviceTensor out = empty(act(), {tokens, heads, expected.dim(2)});
    run(x.view(), weight.view(), out.view());
    const int64_t sampled = std::min(tokens, kSampledRows);
    return cost(download(out.view().slice(0, tokens - sampled, tokens)), expected.rows(0, sampled));
  }
};
INSTANTIATE_TEST_SUITE_P(backends, HeadLinearAccuracyTest, testing::ValuesIn(tested_backends()),
                         backend_name);

// The table of docs/accuracy.md, all of it on a GPU. Two roundings to e4m3 of 3 bits of mantissa: each has a relative
// error of 2.6% of what it rounds, and so has a sum of independent products.
TEST_P(HeadLinearAccuracyTest, fp8_costs_what_two_roundings_to_e4m3_cost) {
  const bool all = backend().device_memory && !backend().batch_invariant;
  std::printf(
      "| %s: error, 1 - cosine | heads | rows | bf16 | FP8 of bf16 weights | FP8 weights |\n",
      GetParam().name.c_str());
  for (const auto& [name, shape] :
       {std::pair{"W_UK", HeadShape{128, 512}}, std::pair{"W_UV", HeadShape{512, 128}}}) {
    ref::Random random(static_cast<uint64_t>(shape.in));
    const double deviation = 1 / std::sqrt(static_cast<double>(shape.in));
    const HostTensor values =
        random.normal(DType::kBf16, {kSampledHeads, shape.out, shape.in}, deviation);
    const ref::HostWeight quantised = ref::quantize_weight(values);
    const HostTensor x = random.normal(act(), {kSampledRows, kSampledHeads, shape.in});
    const HostTensor of_bf16 = ref::head_linear(x, values);
    const HostTensor of_f8 = ref::head_linear(x, ref::dequantize(quantised));
    for (const int64_t heads : {16, 128}) {
      if (heads > 16 && !all) continue;
      const int64_t times = heads / kSampledHeads;
      const auto of_heads = [&](const HostTensor& t) { return with_heads_repeated(t, 1, times); };
      const auto of_rows = [&](const HostTensor& t) {
        return with_heads_repeated(t, kSampledRows, times);
      };
      const DeviceWeight bf16 = upload_weight({.data = of_heads(values), .scale = {}});
      const DeviceWeight f8 =
          upload_weight({.data = of_heads(quantised.data), .scale = of_heads(quantised.scale)});
      const DeviceTensor rows_of_x = upload(of_rows(x));
      const HostTensor expected_bf16 = of_rows(of_bf16), expected_f8 = of_rows(of_f8);
      for (const int64_t tokens : {1, 8, 128, 1024}) {
        if (tokens > 128 && !all) continue;
        const Cost plain = measure(rows_of_x, tokens, bf16, expected_bf16);
        const Cost both = measure(rows_of_x, tokens, f8, expected_bf16);
        const Cost rows = measure(rows_of_x, tokens, f8, expected_f8);
        std::printf("| %s %lldx%lld | %lld | %lld | %.1e, %.1e | %.1e, %.1e | %.1e, %.1e |\n", name,
                    static_cast<long long>(shape.out), static_cast<long long>(shape.in),
                    static_cast<long long>(heads), static_cast<long long>(tokens), plain.error,
                    plain.one_minus_cosine, both.error, both.one_minus_cosine, rows.error,
                    rows.one_minus_cosine);
        EXPECT_LT(plain.error, act() == DType::kBf16 ? 3e-3 : 1e-6);
        EXPECT_NEAR(both.error, 0.026 * std::sqrt(2.0), 0.005);
        EXPECT_NEAR(rows.error, 0.026, 0.004);
        EXPECT_NEAR(both.one_minus_cosine, both.error * both.error / 2, 1e-4);
      }
    }
  }
}

class HeadLinearQuantizeTest : public ProductTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HeadLinearQuantizeTest);
INSTANTIATE_TEST_SUITE_P(backends, HeadLinearQuantizeTest,
                         testing::ValuesIn(backends_with(&ops::Backend::head_linear_quantize)),
                         backend_name);

// W_UV as it lies in kv_b_proj. One head's outputs are zeros, another's are NaN in one row.
TEST_P(HeadLinearQuantizeTest, gives_the_bits_of_its_parts) {
  const int64_t in = 512, out = 128;
  for (const auto& [tokens, heads] : {std::pair<int64_t, int64_t>{1, 16},
                                      {3, 2},
                                      {8, 5},
                                      {9, 16},
                                      {32, 16},
                                      {70, 2},
                                      {65, 16},
                                      {128, 20},
                                      {70, 100},
                                      {127, 3}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << heads << " heads");
    ref::Random random(static_cast<uint64_t>(heads));
    HostTensor x = random.normal(act(), {tokens, heads, in});
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t k = 0; k < in; ++k) x.at(t, 0, k) = 0;
    x.at(tokens - 1, 1, 3) = std::nan("");
    const DeviceTensor device_x = upload(x),
                       weight = upload(random.uniform(DType::kBf16, {heads, 2 * out, in}, -1, 1)),
                       whole = empty(act(), {tokens, heads, out});
    const DeviceTensor q = empty(DType::kF8E4M3, {tokens, heads * out}),
                       scale = empty(DType::kF32, {tokens, heads}),
                       q_of_parts = empty(DType::kF8E4M3, {tokens, heads * out}),
                       scale_of_parts = empty(DType::kF32, {tokens, heads});
    const ops::Weight w_uv{.data = weight.view().slice(1, out, 2 * out), .scale = {}};
    const ops::HeadLinearQuantizeArgs args{
        .x = device_x.view(), .weight = w_uv, .out = {q.view(), scale.view()}};
    const bool has = tokens <= 8 || !backend().batch_invariant;
    ASSERT_EQ(backend().head_linear_quantize.has(args, stream()), has);
    if (!has) continue;
    ops::head_linear_quantize(args, stream());
    ops::head_linear({.x = device_x.view(), .weight = w_uv, .out = whole.view()}, stream());
    ops::quantize_fp8({.x = whole.view().reshape({tokens, heads * out}),
                       .q = q_of_parts.view(),
                       .scale = scale_of_parts.view()},
                      stream());
    EXPECT_EQ(bytes(q.view()), bytes(q_of_parts.view()));
    EXPECT_EQ(bytes(scale.view()), bytes(scale_of_parts.view()));
  }
  const int64_t more = 129;
  const DeviceTensor x = empty(act(), {more, 2, in}), weight = empty(DType::kBf16, {2, out, in}),
                     q = empty(DType::kF8E4M3, {more, 2 * out}),
                     scale = empty(DType::kF32, {more, 2});
  EXPECT_FALSE(backend().head_linear_quantize.has({.x = x.view(),
                                                   .weight = {.data = weight.view(), .scale = {}},
                                                   .out = {q.view(), scale.view()}},
                                                  stream()));
}

}  // namespace
}  // namespace fathom::ops_test
