// The products of many rows of the CUDA backend, called directly (tests/ops/direct_product.h): through the table they
// run only above kMaxBatchTokens tokens.

#include <algorithm>
#include <cmath>

#include "cuda/backend.h"
#include "cuda/gemm/large.h"
#include "cuda/gemm/library.h"
#include "ops/moe.h"
#include "ops/quantize_fp8.h"
#include "ops/rms_norm.h"
#include "tests/ops/direct_product.h"
#include "tests/ops/weight_kinds.h"

namespace fathom::ops_test {
namespace {

constexpr int64_t kPeriod = 37;

struct LargeExperts {
  int64_t tokens, hidden_size, inter, experts, num_experts_per_tok;
};

class LargeProductTest : public DirectProductTest<kPeriod> {
 protected:
  bool linear(const ops::LinearArgs& args) {
    stream().begin_operator({.op = "linear", .dtype = args.weight.data.dtype()},
                            cuda::large_linear_scratch(args));
    return cuda::large_linear(args, stream());
  }
  bool pair(const ops::LinearPairArgs& args) {
    stream().begin_operator({.op = "linear_pair", .dtype = args.a.weight.data.dtype()},
                            cuda::large_linear_pair_scratch(args));
    return cuda::large_linear_pair(args, stream());
  }
  bool experts(const ops::MoeExpertsArgs& args) {
    stream().begin_operator({.op = "moe_experts", .dtype = args.down.data.dtype()},
                            cuda::large_moe_experts_scratch(args));
    return cuda::large_moe_experts(args, stream());
  }
  void expect_right_experts(const WeightKind& kind, const LargeExperts& c);
};
INSTANTIATE_TEST_SUITE_P(backends, LargeProductTest, testing::ValuesIn(gpu_or_stand_in()),
                         backend_name);

struct LargeShape {
  int64_t tokens, in, out;
};
// Less than a tile, tails on every side, partial scale blocks, many rounds of all multiprocessors.
const std::vector<LargeShape> kLargeShapes = {
    {1, 16, 8},       {129, 16, 8},      {200, 1040, 264},  {300, 2048, 576}, {700, 7168, 136},
    {513, 528, 1544}, {4100, 144, 4608}, {8200, 128, 1160}, {3900, 144, 1080}};

TEST_P(LargeProductTest, linear_matches_float64_wherever_a_row_lies) {
  for (const WeightKind& kind : kWeightKinds) {
    if (kind.dtype == DType::kI4x2) continue;
    for (const LargeShape& shape : kLargeShapes) {
      if (!fits(kind, shape.in)) continue;
      SCOPED_TRACE(testing::Message()
                   << kind.name << " " << shape.tokens << "x" << shape.in << "x" << shape.out);
      ref::Random random(static_cast<uint64_t>(shape.in + shape.out));
      const ref::HostWeight weight = random_weight(random, kind, {shape.out, shape.in});
      const HostTensor rows = random.normal(act(), {kPeriod, shape.in});
      const DeviceWeight device_weight = upload_weight(weight);
      const DeviceTensor x = upload(repeated(rows, shape.tokens));
      const DeviceTensor out = empty(act(), {shape.tokens, shape.out});
      ASSERT_TRUE(linear({.x = x.view(), .weight = device_weight.view(), .out = out.view()}));
      expect_repeated(out.view(), ref::linear(rows, weight), kBounds);
    }
  }
}

TEST_P(LargeProductTest, linear_adds_to_strided_rows_and_leaves_the_rest_alone) {
  const LargeShape shape{300, 288, 392};
  for (const WeightKind& kind : kWeightKinds) {
    if (kind.dtype == DType::kI4x2 || !fits(kind, shape.in)) continue;
    for (const DType out_dtype : {act(), DType::kF32}) {
      SCOPED_TRACE(testing::Message() << kind.name << " to " << tensor::dtype_name(out_dtype));
      ref::Random random(5);
      const ref::HostWeight weight = random_weight(random, kind, {shape.out, shape.in});
      const HostTensor rows = random.normal(act(), {kPeriod, shape.in + 24});
      const HostTensor before = random.normal(out_dtype, {kPeriod, shape.out + 24});
      const DeviceWeight device_weight = upload_weight(weight);
      const DeviceTensor x = upload(repeated(rows, shape.tokens));
      const DeviceTensor out = upload(repeated(before, shape.tokens));
      ASSERT_TRUE(linear({.x = x.view().slice(1, 8, shape.in + 8),
                          .weight = device_weight.view(),
                          .accumulate = true,
                          .out = out.view().slice(1, 16, shape.out + 16)}));
      HostTensor expected = before;
      const HostTensor product = ref::linear(rows.columns(8, shape.in + 8), weight);
      for (int64_t t = 0; t < kPeriod; ++t)
        for (int64_t o = 0; o < shape.out; ++o) expected.at(t, 16 + o) += product.at(t, o);
      expect_repeated(out.view(), expected, kBounds);
    }
  }
}

TEST_P(LargeProductTest, linear_of_quantised_rows_has_the_bits_of_one_that_quantises) {
  const LargeShape shape{259, 1040, 520};
  ref::Random random(6);
  const DeviceWeight weight =
      upload_weight(ref::random_weight(random, DType::kF8E4M3, {shape.out, shape.in}));
  const HostTensor rows = random.normal(act(), {shape.tokens, shape.in});
  const DeviceTensor x = upload(rows), a = empty(act(), {shape.tokens, shape.out});
  const DeviceTensor b = empty(act(), {shape.tokens, shape.out});
  const DeviceRows quantised = upload_quantised(rows);
  ASSERT_TRUE(linear({.x = x.view(), .weight = weight.view(), .out = a.view()}));
  ASSERT_TRUE(linear({.x = quantised.view(), .weight = weight.view(), .out = b.view()}));
  EXPECT_EQ(bytes(a.view()), bytes(b.view()));
}

// A second matrix that ends within a tile, one of a single scale block, rows that end within a tile of either size. The
// last three: the last columns as narrow tiles, of types whose 128 channels have scales.
TEST_P(LargeProductTest, a_pair_has_the_bits_of_two_products) {
  const std::vector<std::pair<LargeShape, int64_t>> pairs = {
      {{300, 272, 256}, 72},    {{1025, 1040, 1536}, 576}, {{131, 144, 512}, 520},
      {{1000, 528, 1536}, 576}, {{2020, 144, 1536}, 576},  {{1100, 144, 1792}, 64}};
  for (const WeightKind& kind : kWeightKinds) {
    if (tensor::holds_pairs(kind.dtype)) continue;
    const bool scales_blocks = kind.dtype == DType::kF8E4M3 || kind.form == ops::ScaleForm::kBlocks;
    for (size_t i = 0; i < (scales_blocks ? pairs.size() : pairs.size() - 3); ++i) {
      const LargeShape& shape = pairs[i].first;
      const int64_t second = pairs[i].second;
      SCOPED_TRACE(testing::Message() << kind.name << " " << shape.tokens << "x" << shape.in << "x"
                                      << shape.out << " and " << second);
      ref::Random random(static_cast<uint64_t>(shape.in + second));
      const DeviceTensor x = upload(random.normal(act(), {shape.tokens, shape.in}));
      const auto weight = [&](int64_t out) {
        return upload_weight(random_weight(random, kind, {out, shape.in}));
      };
      const DeviceWeight a = weight(shape.out), b = weight(second);
      const auto outputs = [&](int64_t out) { return empty(act(), {shape.tokens, out}); };
      const DeviceTensor first = outputs(shape.out), first_alone = outputs(shape.out);
      const DeviceTensor last = outputs(second), last_alone = outputs(second);
      ASSERT_TRUE(
          pair({.x = x.view(), .a = {a.view(), first.view()}, .b = {b.view(), last.view()}}));
      ASSERT_TRUE(linear({.x = x.view(), .weight = a.view(), .out = first_alone.view()}));
      ASSERT_TRUE(linear({.x = x.view(), .weight = b.view(), .out = last_alone.view()}));
      EXPECT_EQ(bytes(first.view()), bytes(first_alone.view()));
      EXPECT_EQ(bytes(last.view()), bytes(last_alone.view()));
    }
  }
}

TEST_P(LargeProductTest, a_nan_in_one_row_stays_in_that_row) {
  for (const WeightKind& kind : kWeightKinds) {
    if (tensor::holds_pairs(kind.dtype)) continue;
    ref::Random random(7);
    HostTensor rows = random.normal(act(), {300, 208});
    rows.at(140, 200) = std::nan("");
    const DeviceWeight weight = upload_weight(random_weight(random, kind, {264, 208}));
    const DeviceTensor x = upload(rows), out = empty(act(), {300, 264});
    ASSERT_TRUE(linear({.x = x.view(), .weight = weight.view(), .out = out.view()}));
    const HostTensor actual = download(out.view());
    for (int64_t t = 0; t < 300; ++t)
      for (int64_t o = 0; o < 264; ++o) ASSERT_EQ(std::isnan(actual.at(t, o)), t == 140) << t;
  }
}

TEST_P(LargeProductTest, sizes_and_strides_that_do_not_fit_are_left_to_others) {
  const auto takes = [&](int64_t in, int64_t out, DType dtype, int64_t x_skip) {
    const DeviceTensor x = empty(act(), {130, in + 8}), weight = empty(dtype, {out, in});
    const DeviceTensor scale = empty(DType::kF32, {(out + 127) / 128, (in + 127) / 128});
    const DeviceTensor y = empty(act(), {130, out});
    const bool is_f8 = dtype == DType::kF8E4M3;
    return linear({.x = x.view().slice(1, x_skip, in + x_skip),
                   .weight = {.data = weight.view(), .scale = is_f8 ? scale.view() : Tensor()},
                   .out = y.view()});
  };
  EXPECT_TRUE(takes(64, 64, DType::kBf16, 8));
  EXPECT_FALSE(takes(64, 64, DType::kBf16, 1));
  EXPECT_FALSE(takes(2046, 64, DType::kBf16, 0));
  EXPECT_FALSE(takes(72, 64, DType::kF8E4M3, 0));
  EXPECT_FALSE(takes(64, 61, DType::kBf16, 0));
  EXPECT_FALSE(takes(64, 64, DType::kF32, 0));
  const DeviceTensor weight = empty(act(), {64, 64}), none = empty(act(), {0, 64});
  EXPECT_TRUE(linear(
      {.x = none.view(), .weight = {.data = weight.view(), .scale = {}}, .out = none.view()}));
}

// cuBLASLt in place of our kernels, where it takes a product.
class LibraryProductTest : public LargeProductTest {
 protected:
  void SetUp() override {
    LargeProductTest::SetUp();
    if (IsSkipped()) return;
    const Result<std::string> library = cuda::find_cublaslt();
    if (!library) GTEST_SKIP() << library.error().message << "; to run it: the CUDA toolkit";
    // So that there is scratch for it.
    cuda::set_gemm_backend(cuda::GemmBackend::kCublasLt);
  }
  void TearDown() override { cuda::set_gemm_backend(cuda::GemmBackend::kAuto); }

  bool by_library(const ops::LinearArgs& args) {
    stream().begin_operator({.op = "linear", .dtype = args.weight.data.dtype()},
                            cuda::large_linear_scratch(args));
    return cuda::library_linear(args, stream());
  }
  void expect_right(DType dtype, const LargeShape& shape, DType out_dtype, bool accumulate) {
    SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << " " << shape.tokens << "x"
                                    << shape.in << "x" << shape.out);
    ref::Random random(static_cast<uint64_t>(shape.in + shape.out));
    const ref::HostWeight weight = ref::random_weight(random, dtype, {shape.out, shape.in});
    const HostTensor rows = random.normal(act(), {kPeriod, shape.in});
    const HostTensor before = random.normal(out_dtype, {kPeriod, shape.out});
    const DeviceWeight device_weight = upload_weight(weight);
    const DeviceTensor x = upload(repeated(rows, shape.tokens));
    const DeviceTensor out = upload(repeated(before, shape.tokens));
    ASSERT_TRUE(by_library({.x = x.view(),
                            .weight = device_weight.view(),
                            .accumulate = accumulate,
                            .out = out.view()}));
    HostTensor expected = ref::linear(rows, weight);
    if (accumulate)
      for (int64_t t = 0; t < kPeriod; ++t)
        for (int64_t o = 0; o < shape.out; ++o) expected.at(t, o) += before.at(t, o);
    expect_repeated(out.view(), expected, kBounds);
  }
};
INSTANTIATE_TEST_SUITE_P(backends, LibraryProductTest, testing::ValuesIn(gpu_or_stand_in()),
                         backend_name);

// Scales of 1 to 9 blocks of 128 channels, whole and partial, beside each other in lines of 4.
TEST_P(LibraryProductTest, linear_matches_float64) {
  const std::vector<LargeShape> shapes = {
      {132, 128, 256}, {256, 512, 1536}, {300, 1040, 272}, {1024, 1152, 576}, {4100, 144, 4608}};
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3})
    for (const LargeShape& shape : shapes)
      for (const DType out_dtype : {act(), DType::kF32})
        for (const bool accumulate : {false, true})
          expect_right(dtype, shape, out_dtype, accumulate);
}

// Small enough for compute-sanitizer.
TEST_P(LibraryProductTest, a_small_product_matches_float64) {
  expect_right(DType::kF8E4M3, {132, 128, 256}, act(), false);
}

// The library may choose among algorithms: what it chose has to stay, launch by launch and in a graph.
TEST_P(LibraryProductTest, linear_gives_the_same_bits_again) {
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3})
    for (const LargeShape& shape : {LargeShape{256, 512, 1536}, {1024, 7168, 576}}) {
      SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << " " << shape.tokens << "x"
                                      << shape.in << "x" << shape.out);
      ref::Random random(11);
      const DeviceWeight weight =
          upload_weight(ref::random_weight(random, dtype, {shape.out, shape.in}));
      const DeviceTensor x = upload(random.normal(act(), {shape.tokens, shape.in}));
      const auto run = [&] {
        const DeviceTensor out = empty(act(), {shape.tokens, shape.out});
        const ops::LinearArgs args{.x = x.view(), .weight = weight.view(), .out = out.view()};
        EXPECT_TRUE(by_library(args));
        const std::vector<uint8_t> alone = bytes(out.view());
        const auto graph =
            stream().capture([&] { EXPECT_TRUE(cuda::library_linear(args, stream())); });
        graph->replay(stream());
        EXPECT_TRUE(bytes(out.view()) == alone) << "in a graph";
        return alone;
      };
      const std::vector<uint8_t> first = run();
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(run() == first) << "run " << i;
    }
}

TEST_P(LibraryProductTest, rows_that_the_library_does_not_take_are_ours) {
  const LargeShape shape{131, 256, 128};
  const DeviceTensor x = empty(act(), {shape.tokens, shape.in});
  const DeviceTensor out = empty(act(), {shape.tokens, shape.out});
  ref::Random random(9);
  const DeviceWeight weight =
      upload_weight(ref::random_weight(random, DType::kF8E4M3, {shape.out, shape.in}));
  const ops::LinearArgs args{.x = x.view(), .weight = weight.view(), .out = out.view()};
  EXPECT_FALSE(by_library(args));
  EXPECT_TRUE(linear(args));
}

TEST_P(LibraryProductTest, linear_of_quantised_rows_can_be_captured_before_it_has_run) {
  const LargeShape shape{392, 640, 384};
  ref::Random random(8);
  const ref::HostWeight weight = ref::random_weight(random, DType::kF8E4M3, {shape.out, shape.in});
  const HostTensor rows = random.normal(act(), {shape.tokens, shape.in});
  const DeviceWeight device_weight = upload_weight(weight);
  const DeviceRows x = upload_quantised(rows);
  const DeviceTensor out = empty(act(), {shape.tokens, shape.out});
  const ops::LinearArgs args{.x = x.view(), .weight = device_weight.view(), .out = out.view()};
  stream().begin_measuring();
  stream().begin_operator({.op = "linear", .dtype = DType::kF8E4M3},
                          cuda::large_linear_scratch(args));
  stream().seal_scratch();
  const auto graph = stream().capture([&] { ASSERT_TRUE(cuda::library_linear(args, stream())); });
  graph->replay(stream());
  expect_close(download(out.view()), ref::linear(rows, weight), kBounds);
}

// One token; a hidden size with a partial scale block; more experts than pairs; experts with many tiles, more chunks
// of pairs than one; a hidden size that wide tiles divide; few rows an expert, of several tiles each.
const std::vector<LargeExperts> kLargeExperts = {
    {1, 128, 128, 3, 2},    {300, 208, 256, 8, 3},  {333, 1056, 128, 5, 2}, {9, 64, 128, 40, 2},
    {2000, 256, 384, 5, 4}, {130, 1168, 256, 4, 2}, {600, 512, 256, 9, 2},  {200, 512, 256, 5, 3}};
constexpr Bounds kLargeBounds{.f32 = {.abs = 2e-5, .rel = 2e-5, .one_minus_cosine = 1e-10},
                              .bf16 = {.abs = 3e-2, .rel = 2e-2, .one_minus_cosine = 1e-4}};
// Weights with zero points are rounded to bf16, too.
constexpr Bounds kLargeU4Bounds{.f32 = kLargeBounds.f32,
                                .bf16 = {.abs = 1.6e-1, .rel = 2e-2, .one_minus_cosine = 1e-4}};
// A hidden value at the edge of two FP8 neighbours may fall to either; the tensor cores sum e4m3 products in about 14
// bits, so more of them do than where the sums are float32. It moves the outputs of a row by up to a fourteenth of the
// largest hidden value of its block (here 10 to 20) times a weight each (0.06 as a rule, 0.45 at most), few of them
// far: in eight draws of values one by 0.12, one by 0.18, five of 4736 beyond 0.1, and 1 - cosine of few rows was 5e-5
// once. gate_up rounded to bf16 would show as 1e-4 there. A single row has no others that outweigh such a value: 8e-4
// in one of six draws, (1/14)^2 / 2 at most where one hidden value is all.
constexpr Bounds kLargeFp8Bounds{
    .f32 = {.abs = 2e-2, .rel = 1e-3, .one_minus_cosine = 1e-5},
    .bf16 = {.abs = 1e-1, .rel = 5e-2, .one_minus_cosine = 8e-5, .rare = 5e-3}};

// Distinct experts a token, some pairs and some tokens without any, the last expert named by nobody.
HostTensor random_ids(ref::Random& random, const LargeExperts& c) {
  HostTensor ids(DType::kI32, {kPeriod, c.num_experts_per_tok});
  for (int64_t t = 0; t < kPeriod; ++t) {
    const std::vector<int32_t> order = random.permutation(static_cast<int>(c.experts - 1));
    for (int64_t j = 0; j < c.num_experts_per_tok; ++j) {
      const bool is_skipped = (t % 7 == 6 && j == 0) || t % 11 == 10;
      ids.at(t, j) = is_skipped ? -1 : order[static_cast<size_t>(j)];
    }
  }
  return ids;
}

void LargeProductTest::expect_right_experts(const WeightKind& kind, const LargeExperts& c) {
  SCOPED_TRACE(testing::Message() << kind.name << " " << c.tokens << " tokens " << c.hidden_size
                                  << "x" << c.inter << " of " << c.experts);
  ref::Random random(static_cast<uint64_t>(c.tokens + c.hidden_size));
  const HostTensor rows = random.normal(act(), {kPeriod, c.hidden_size});
  const HostTensor row_ids = random_ids(random, c);
  const HostTensor row_weights =
      random.uniform(DType::kF32, {kPeriod, c.num_experts_per_tok}, 0.1, 1);
  const HostTensor before = random.normal(act(), {kPeriod, c.hidden_size});
  const ref::HostWeight gate_up =
      random_weight(random, kind, {c.experts, 2, c.inter, c.hidden_size});
  const ref::HostWeight down = random_weight(random, kind, {c.experts, c.hidden_size, c.inter});
  Bounds bounds = kind.dtype == DType::kBf16   ? kLargeBounds
                  : kind.dtype == DType::kU4x2 ? kLargeU4Bounds
                                               : kLargeFp8Bounds;
  if (c.tokens == 1 && takes_e4m3(kind)) bounds.bf16.one_minus_cosine = 3e-3;
  const DeviceTensor x = upload(repeated(rows, c.tokens));
  const DeviceTensor ids = upload(repeated(row_ids, c.tokens));
  const DeviceTensor weights = upload(repeated(row_weights, c.tokens));
  const DeviceWeight device_gate_up = upload_weight(gate_up), device_down = upload_weight(down);
  const DeviceRows quantised = upload_quantised(repeated(rows, c.tokens));
  HostTensor expected = ref::moe_experts(rows, row_ids, row_weights, gate_up, down);
  for (const bool accumulate : {false, true}) {
    const DeviceTensor out = upload(repeated(before, c.tokens));
    for (size_t i = 0; accumulate && i < expected.values.size(); ++i)
      expected.values[i] += before.values[i];
    ASSERT_TRUE(experts({.x = takes_e4m3(kind) && accumulate ? quantised.view() : x.view(),
                         .ids = ids.view(),
                         .weights = weights.view(),
                         .gate_up = device_gate_up.view(),
                         .down = device_down.view(),
                         .accumulate = accumulate,
                         .out = out.view()}));
    expect_repeated(out.view(), expected, bounds);
  }
}

TEST_P(LargeProductTest, experts_match_float64_wherever_a_row_lies) {
  for (const WeightKind& kind : kWeightKinds)
    for (const LargeExperts& c : kLargeExperts) {
      if (tensor::holds_pairs(kind.dtype) && c.hidden_size % 32 != 0) continue;
      expect_right_experts(kind, c);
    }
}

// Small enough for compute-sanitizer.
TEST_P(LargeProductTest, experts_of_a_tile_each_match_float64) {
  for (const WeightKind& kind : kWeightKinds)
    for (const int64_t inter : {128, 256}) expect_right_experts(kind, {40, 128, inter, 3, 2});
}

TEST_P(LargeProductTest, experts_of_more_pairs_than_a_chunk_match_float64) {
  for (const DType dtype : {DType::kF8E4M3, DType::kBf16})
    expect_right_experts({.name = "experts", .dtype = dtype, .form = {}}, {2100, 128, 128, 3, 2});
}

// Each cluster gets more tiles than it keeps places for, of one step each: of gate and up, then of down.
TEST_P(LargeProductTest, experts_of_many_tiles_match_float64) {
  const WeightKind bf16{.name = "bf16", .dtype = DType::kBf16, .form = {}};
  expect_right_experts(bf16, {6000, 64, 1024, 6, 4});
  expect_right_experts(bf16, {6000, 2048, 64, 6, 4});
  const WeightKind f8{.name = "f8", .dtype = DType::kF8E4M3, .form = {}};
  expect_right_experts(f8, {6000, 128, 1024, 6, 4});
}

// Each by kernels of its own. A block has some channels of one tile, then some of the next.
TEST_P(LargeProductTest, experts_of_few_rows_have_the_bits_of_many) {
  const LargeExperts c{20 * kPeriod, 3072, 256, 6, 3};
  ref::Random random(10);
  const DeviceTensor x = upload(repeated(random.normal(act(), {kPeriod, c.hidden_size}), c.tokens));
  const DeviceTensor ids = upload(repeated(random_ids(random, c), c.tokens));
  const DeviceTensor weights = upload(
      repeated(random.uniform(DType::kF32, {kPeriod, c.num_experts_per_tok}, 0.1, 1), c.tokens));
  for (const DType dtype : {DType::kF8E4M3, DType::kBf16}) {
    SCOPED_TRACE(tensor::dtype_name(dtype));
    const DeviceWeight gate_up =
        upload_weight(ref::random_weight(random, dtype, {c.experts, 2, c.inter, c.hidden_size}));
    const DeviceWeight down =
        upload_weight(ref::random_weight(random, dtype, {c.experts, c.hidden_size, c.inter}));
    const auto run = [&](int64_t tokens) {
      const DeviceTensor out = empty(act(), {tokens, c.hidden_size});
      EXPECT_TRUE(experts({.x = x.view().slice(0, 0, tokens),
                           .ids = ids.view().slice(0, 0, tokens),
                           .weights = weights.view().slice(0, 0, tokens),
                           .gate_up = gate_up.view(),
                           .down = down.view(),
                           .out = out.view()}));
      return bytes(out.view().slice(0, tokens - kPeriod, tokens));
    };
    const std::vector<uint8_t> few = run(kPeriod);
    EXPECT_EQ(run(4 * kPeriod), few);
    EXPECT_EQ(run(c.tokens), few);
  }
}

TEST_P(LargeProductTest, experts_can_be_captured_and_give_the_same_bits_again) {
  const LargeExperts c{700, 512, 256, 16, 4};
  ref::Random random(8);
  const DeviceTensor x = upload(random.normal(act(), {c.tokens, c.hidden_size}));
  const DeviceTensor ids = upload(repeated(random_ids(random, c), c.tokens));
  const DeviceTensor weights =
      upload(random.uniform(DType::kF32, {c.tokens, c.num_experts_per_tok}, 0.1, 1));
  const DeviceWeight gate_up = upload_weight(
      ref::random_weight(random, DType::kF8E4M3, {c.experts, 2, c.inter, c.hidden_size}));
  const DeviceWeight down = upload_weight(
      ref::random_weight(random, DType::kF8E4M3, {c.experts, c.hidden_size, c.inter}));
  const DeviceTensor out = empty(act(), {c.tokens, c.hidden_size});
  const auto run = [&] {
    ASSERT_TRUE(experts({.x = x.view(),
                         .ids = ids.view(),
                         .weights = weights.view(),
                         .gate_up = gate_up.view(),
                         .down = down.view(),
                         .out = out.view()}));
  };
  run();
  const std::vector<uint8_t> first = bytes(out.view());
  const std::unique_ptr<ops::Graph> graph = stream().capture(run);
  for (int i = 0; i < 3; ++i) {
    graph->replay(stream());
    EXPECT_EQ(bytes(out.view()), first) << i;
  }
}

// The other kernels of a prefill's rows are here too: tests of single operators have too few rows to reach them.
TEST_P(LargeProductTest, norms_of_many_rows_have_the_bits_of_few) {
  const int64_t rows = 2200, dim = 7168, few = 100, blocks = dim / 128;
  ref::Random random(9);
  const HostTensor x = random.normal(act(), {rows, dim}),
                   before = random.normal(act(), {rows, dim});
  const DeviceTensor weight = upload(random.normal(act(), {dim})), device_x = upload(x);
  const auto run = [&](int64_t step) {
    const DeviceTensor residual = upload(before), out = empty(act(), {rows, dim});
    const DeviceTensor q = empty(DType::kF8E4M3, {rows, dim});
    const DeviceTensor scale = empty(DType::kF32, {rows, blocks});
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t end = std::min(begin + step, rows);
      ops::rms_norm_quantize(
          {.norm = {.x = device_x.view().slice(0, begin, end),
                    .weight = weight.view(),
                    .residual = residual.view().slice(0, begin, end),
                    .out = out.view().slice(0, begin, end)},
           .quantised = {q.view().slice(0, begin, end), scale.view().slice(0, begin, end)}},
          stream());
    }
    return std::vector{bytes(residual.view()), bytes(out.view()), bytes(q.view()),
                       bytes(scale.view())};
  };
  const auto many = run(rows), each = run(few);
  for (size_t i = 0; i < many.size(); ++i) EXPECT_TRUE(many[i] == each[i]) << i;
}

class GateTest : public LargeProductTest {
 protected:
  static constexpr int64_t kChosen = 6;

  // The choice of `count` tokens, which repeat the rows, as values of ids and of weights.
  std::pair<HostTensor, HostTensor> choose(ops::GateKind kind, int64_t count, int64_t hidden_size,
                                           int64_t experts) {
    ref::Random random(10);
    const DeviceTensor x = upload(repeated(random.normal(act(), {kPeriod, hidden_size}), count));
    const DeviceTensor weight = upload(random.normal(DType::kBf16, {experts, hidden_size}, 0.05));
    const DeviceTensor bias = upload(random.normal(DType::kF32, {experts}, 0.1));
    const DeviceTensor ids = empty(DType::kI32, {count, kChosen});
    const DeviceTensor weights = empty(DType::kF32, {count, kChosen});
    ops::MoeGateArgs args;
    args.kind = kind;
    args.x = x.view();
    args.weight = weight.view();
    if (kind == ops::GateKind::kSigmoidNoAux) {
      args.bias = bias.view();
      args.n_group = 8;
      args.topk_group = 3;
    }
    args.ids = ids.view();
    args.weights = weights.view();
    ops::moe_gate(args, stream());
    return {download(ids.view()), download(weights.view())};
  }
};
INSTANTIATE_TEST_SUITE_P(backends, GateTest, testing::ValuesIn(gpu_or_stand_in()), backend_name);

TEST_P(GateTest, of_many_tokens_chooses_as_that_of_few) {
  const int64_t tokens = 2000, hidden_size = 1088, experts = 72;
  for (const ops::GateKind kind : {ops::GateKind::kSoftmaxGreedy, ops::GateKind::kSigmoidNoAux}) {
    const auto few = choose(kind, kPeriod, hidden_size, experts);
    const auto many = choose(kind, tokens, hidden_size, experts);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t j = 0; j < kChosen; ++j) {
        ASSERT_EQ(many.first.at(t, j), few.first.at(t % kPeriod, j)) << t;
        ASSERT_NEAR(many.second.at(t, j), few.second.at(t % kPeriod, j), 1e-5) << t;
      }
  }
}

// Of widths and numbers of experts that the kernel of some hundred tokens takes.
TEST_P(GateTest, of_some_tokens_has_the_bits_of_that_of_few) {
  const int64_t tokens = 400;
  for (const int64_t experts : {64, 72, 160}) {
    for (const int64_t hidden_size : {1024, 2048, 5120}) {
      SCOPED_TRACE(testing::Message() << experts << " experts, " << hidden_size);
      const auto kind = ops::GateKind::kSigmoidNoAux;
      const auto few = choose(kind, kPeriod, hidden_size, experts);
      const auto some = choose(kind, tokens, hidden_size, experts);
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t j = 0; j < kChosen; ++j) {
          ASSERT_EQ(some.first.at(t, j), few.first.at(t % kPeriod, j)) << t;
          ASSERT_EQ(some.second.at(t, j), few.second.at(t % kPeriod, j)) << t;
        }
    }
  }
}

}  // namespace
}  // namespace fathom::ops_test
