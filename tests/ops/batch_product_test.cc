// The products of a batch of the CUDA backend, called directly (tests/ops/direct_product.h).

#include "cuda/linear/batch_product.h"

#include "cuda/gemm/large.h"
#include "ops/linear.h"
#include "ops/quantize_fp8.h"
#include "tests/ops/direct_product.h"

namespace fathom::ops_test {
namespace {

class BatchProductTest : public DirectProductTest<7> {
 protected:
  // As the kernel reads them: quantised for f8 weights.
  DeviceRows upload_rows(const HostTensor& x, DType weight) {
    if (weight != DType::kF8E4M3)
      return {.values = upload(x), .scale = upload(HostTensor(DType::kF32, {1}))};
    return upload_quantised(x);
  }

  static cuda::ProductPart part_of(const DeviceWeight& weight, const Tensor& out) {
    return {.weight = static_cast<const char*>(weight.data.view().data()),
            .w_scale = weight.scale.view().as<float>(),
            .out = static_cast<char*>(out.data()),
            .out_stride = out.stride(0),
            .rows = static_cast<int>(weight.data.view().dim(0)),
            .out_is_float = out.dtype() == DType::kF32};
  }
  static cuda::ProductParams params_of(const Tensor& x, const Tensor& scale) {
    cuda::ProductParams params;
    params.x = static_cast<const char*>(x.data());
    params.x_scale = scale.as<float>();
    params.x_stride_bytes = x.stride(0) * tensor::dtype_bytes(x.dtype());
    params.tokens = static_cast<int>(x.dim(0));
    params.in = static_cast<int>(x.dim(1));
    return params;
  }
  bool run(DType weight, const cuda::ProductParams& params) {
    stream().begin_operator({.op = "linear", .dtype = weight}, 0);
    const cuda::Stored stored = weight == DType::kBf16     ? cuda::Stored::kBf16
                                : weight == DType::kF8E4M3 ? cuda::Stored::kF8
                                                           : cuda::Stored::kF32;
    return cuda::run_batch_product(stored, params, stream());
  }
};
INSTANTIATE_TEST_SUITE_P(backends, BatchProductTest, testing::ValuesIn(gpu_or_stand_in()),
                         backend_name);

constexpr int64_t kTokens[] = {9, 32, 33, 64, 65, 127, 128};

struct Shape {
  int64_t in, out;
};
// Less than a line and than a tile of rows; tails on both sides; groups of every size; scales of more lines than there
// is room for at once.
const std::vector<Shape> kShapes = {{16, 8},     {1040, 264}, {2048, 576},
                                    {7168, 130}, {528, 4616}, {1552, 7200}};

TEST_P(BatchProductTest, matches_float64_at_every_number_of_tokens) {
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3}) {
    for (const Shape& shape : kShapes) {
      ref::Random random(static_cast<uint64_t>(shape.in + shape.out));
      const ref::HostWeight weight = ref::random_weight(random, dtype, {shape.out, shape.in});
      const HostTensor rows = random.normal(act(), {kPeriod, shape.in});
      const HostTensor expected = ref::linear(rows, weight);
      const DeviceWeight device_weight = upload_weight(weight);
      for (const int64_t tokens : kTokens) {
        SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << " " << tokens << "x"
                                        << shape.in << "x" << shape.out);
        const DeviceRows x = upload_rows(repeated(rows, tokens), dtype);
        const DeviceTensor out = empty(act(), {tokens, shape.out});
        cuda::ProductParams params = params_of(x.values.view(), x.scale.view());
        params.a = part_of(device_weight, out.view());
        ASSERT_TRUE(run(dtype, params));
        expect_repeated(out.view(), expected, kBounds);
      }
    }
  }
}

TEST_P(BatchProductTest, adds_to_strided_rows_and_leaves_the_rest_alone) {
  const Shape shape{272, 390};
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3})
    for (const DType out_dtype : {act(), DType::kF32})
      for (const int64_t shift : {8, 5}) {  // aligned for whole stores, and not
        SCOPED_TRACE(testing::Message()
                     << tensor::dtype_name(dtype) << " to " << tensor::dtype_name(out_dtype));
        const int64_t tokens = 70;
        ref::Random random(5);
        const ref::HostWeight weight = ref::random_weight(random, dtype, {shape.out, shape.in});
        const HostTensor rows = random.normal(act(), {kPeriod, shape.in});
        const HostTensor before = random.normal(out_dtype, {kPeriod, shape.out + 18});
        const DeviceWeight device_weight = upload_weight(weight);
        const DeviceRows x = upload_rows(repeated(rows, tokens), dtype);
        const DeviceTensor out = upload(repeated(before, tokens));
        cuda::ProductParams params = params_of(x.values.view(), x.scale.view());
        params.a = part_of(device_weight, out.view().slice(1, shift, shape.out + shift));
        params.accumulate = true;
        ASSERT_TRUE(run(dtype, params));
        HostTensor expected = before;
        const HostTensor product = ref::linear(rows, weight);
        for (int64_t t = 0; t < kPeriod; ++t)
          for (int64_t o = 0; o < shape.out; ++o) expected.at(t, shift + o) += product.at(t, o);
        expect_repeated(out.view(), expected, kBounds);
      }
}

TEST_P(BatchProductTest, a_pair_has_the_bits_of_two_products) {
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3}) {
    const int64_t tokens = 100, in = 2048, out_a = 3072, out_b = 576;
    ref::Random random(6);
    const DeviceRows x = upload_rows(random.normal(act(), {tokens, in}), dtype);
    const DeviceWeight a = upload_weight(ref::random_weight(random, dtype, {out_a, in}));
    const DeviceWeight b = upload_weight(ref::random_weight(random, dtype, {out_b, in}));
    const DeviceTensor pair_a = empty(act(), {tokens, out_a}),
                       one_a = empty(act(), {tokens, out_a});
    const DeviceTensor pair_b = empty(act(), {tokens, out_b}),
                       one_b = empty(act(), {tokens, out_b});
    cuda::ProductParams params = params_of(x.values.view(), x.scale.view());
    params.a = part_of(a, pair_a.view());
    params.b = part_of(b, pair_b.view());
    ASSERT_TRUE(run(dtype, params));
    params.b = {};
    params.a = part_of(a, one_a.view());
    ASSERT_TRUE(run(dtype, params));
    params.a = part_of(b, one_b.view());
    ASSERT_TRUE(run(dtype, params));
    EXPECT_TRUE(bytes(pair_a.view()) == bytes(one_a.view())) << tensor::dtype_name(dtype);
    EXPECT_TRUE(bytes(pair_b.view()) == bytes(one_b.view())) << tensor::dtype_name(dtype);
  }
}

// Tiles of 64 rows and of 128; tails on both sides; more lines than the scales that are asked for ahead.
TEST_P(BatchProductTest, many_rows_have_the_bits_of_gemm) {
  struct Many {
    int64_t tokens, in, out;
  };
  for (const Many& c : {Many{129, 1040, 264}, Many{300, 7168, 520}, Many{1000, 528, 1000}}) {
    SCOPED_TRACE(testing::Message() << c.tokens << "x" << c.in << "x" << c.out);
    ref::Random random(static_cast<uint64_t>(c.in + c.out));
    const HostTensor rows = random.normal(act(), {kPeriod, c.in});
    const ref::HostWeight weight = ref::random_weight(random, DType::kF8E4M3, {c.out, c.in});
    const DeviceWeight device_weight = upload_weight(weight);
    const DeviceRows x = upload_quantised(repeated(rows, c.tokens));
    const DeviceTensor out = empty(act(), {c.tokens, c.out});
    const DeviceTensor large_out = empty(act(), {c.tokens, c.out});
    cuda::ProductParams params = params_of(x.values.view(), x.scale.view());
    params.a = part_of(device_weight, out.view());
    ASSERT_TRUE(cuda::takes_many_rows(cuda::Stored::kF8, params));
    ASSERT_TRUE(run(DType::kF8E4M3, params));
    expect_repeated(out.view(), ref::linear(rows, weight), kBounds);
    const ops::LinearArgs large{
        .x = x.view(), .weight = device_weight.view(), .out = large_out.view()};
    stream().begin_operator({.op = "linear", .dtype = DType::kF8E4M3},
                            cuda::large_linear_scratch(large));
    ASSERT_TRUE(cuda::large_linear(large, stream()));
    EXPECT_TRUE(bytes(out.view()) == bytes(large_out.view()));
  }
}

// Infinities in what no row and no head of the product has must not reach it: zeros times them are no zeros.
TEST_P(BatchProductTest, heads_are_parts_of_wider_rows) {
  const int64_t heads = 3, in = 128, out = 200, before = 8, wide = 192;
  for (const int64_t tokens : {40, 300}) {
    SCOPED_TRACE(tokens);
    ref::Random random(7);
    HostTensor x(act(), {tokens, heads, wide}, INFINITY);
    HostTensor narrow(act(), {tokens, heads, in});
    const HostTensor values = random.normal(act(), {tokens, heads, in});
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < in; ++i) x.at(t, h, i) = narrow.at(t, h, i) = values.at(t, h, i);
    const HostTensor weight = random.normal(DType::kBf16, {heads, out + before, in}, 0.1);
    HostTensor part(DType::kBf16, {heads, out, in});
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < in; ++i) part.at(h, o, i) = weight.at(h, o + before, i);
    const DeviceTensor device_x = upload(x), device_weight = upload(weight);
    const DeviceTensor result = empty(act(), {tokens, heads, out});
    const Tensor rows = device_weight.view().slice(1, before, out + before);
    cuda::ProductParams params;
    params.x = static_cast<const char*>(device_x.view().data());
    params.x_stride_bytes = heads * wide * 2;
    params.x_head_bytes = wide * 2;
    params.tokens = static_cast<int>(tokens);
    params.in = static_cast<int>(in);
    params.heads = static_cast<int>(heads);
    params.a = {.weight = static_cast<const char*>(rows.data()),
                .out = static_cast<char*>(result.view().data()),
                .weight_head_bytes = rows.stride(0) * 2,
                .out_stride = heads * out,
                .out_head = out,
                .rows = static_cast<int>(out)};
    ASSERT_TRUE(run(DType::kBf16, params));
    expect_close(download(result.view()), ref::head_linear(narrow, part), kBounds);
  }
}

TEST_P(BatchProductTest, leaves_what_it_cannot_read_to_others) {
  const DeviceTensor x = empty(act(), {130, 72}), out = empty(act(), {130, 64});
  const DeviceTensor weight = empty(act(), {64, 72}), scale = empty(DType::kF32, {1});
  const auto takes = [&](DType dtype, int64_t tokens, int in, int64_t shift) {
    cuda::ProductParams params = params_of(x.view().slice(0, 0, tokens), scale.view());
    params.x += shift;
    params.in = in;
    params.a = {.weight = static_cast<const char*>(weight.view().data()),
                .out = static_cast<char*>(out.view().data()),
                .out_stride = 64,
                .rows = 64};
    return run(dtype, params);
  };
  EXPECT_TRUE(takes(DType::kBf16, 128, 72, 0));
  EXPECT_FALSE(takes(DType::kBf16, 129, 72, 0));
  EXPECT_FALSE(takes(DType::kBf16, 128, 69, 0));
  EXPECT_FALSE(takes(DType::kBf16, 128, 72, 2));
  EXPECT_FALSE(takes(DType::kF32, 128, 64, 0));
}

}  // namespace
}  // namespace fathom::ops_test
