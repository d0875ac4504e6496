// The indexer's keys and queries against a float64 oracle.

#include "ops/index.h"

#include <cmath>
#include <limits>

#include "tests/ops/index_cases.h"
#include "tests/ref/index.h"

namespace fathom::ops_test {
namespace {

TEST(IndexFormat, has_a_scale_a_row_in_fp8) {
  EXPECT_EQ(ops::IndexFormat::of(DType::kF8E4M3, 128).row_bytes(), 132);
  EXPECT_EQ(ops::IndexFormat::of(DType::kF32, 128).row_bytes(), 512);
}

// amax = max(|x|, 1e-4), scale = 2^ceil(log2(amax / 448)).
TEST(IndexFormat, scales_by_powers_of_two_with_a_floor) {
  EXPECT_EQ(ops::index_scale(448.0f), 1.0f);
  EXPECT_EQ(ops::index_scale(std::nextafter(448.0f, 1000.0f)), 2.0f);
  EXPECT_EQ(ops::index_scale(0.875f), std::exp2(-9.0f));
  for (const float small : {0.0f, 1e-30f, 1e-4f}) EXPECT_EQ(ops::index_scale(small), 0x1p-22f);
  EXPECT_TRUE(std::isinf(ops::index_scale(std::numeric_limits<float>::infinity())));
}

class IndexTest : public IndexFixture {};
INSTANTIATE_TEST_SUITE_P(backends, IndexTest,
                         testing::ValuesIn(backends_with(&ops::Backend::index_scores)),
                         backend_name);

Bounds bounds_of(bool f8) {
  // One step of e4m3 where a value lies between two.
  const Bound bound = f8 ? Bound{.abs = 2e-3, .rel = 0.13, .one_minus_cosine = 1e-3}
                         : Bound{.abs = 3e-6, .rel = 3e-6, .one_minus_cosine = 1e-11};
  return {.f32 = bound, .bf16 = bound};  // of operators that compute in float32
}

HostTensor times_scale(const HostTensor& values, const HostTensor& scale) {
  HostTensor out = values;
  out.dtype = DType::kF32;
  const size_t dim = values.values.size() / scale.values.size();
  for (size_t i = 0; i < out.values.size(); ++i) out.values[i] *= scale.values[i / dim];
  return out;
}

TEST_P(IndexTest, keys_are_normalised_rotated_and_stored_where_the_rows_say) {
  for (const IndexDims& dims : kIndexDims)
    for (const bool f8 : key_forms()) {
      SCOPED_TRACE(std::to_string(dims.dim) + (f8 ? ", f8" : ", f32"));
      constexpr int64_t kTokens = 9, kBlocks = 3, kTokensOfBlock = 4;
      ref::Random random(11);
      const HostTensor k = random.normal(act(), {kTokens, dims.dim}, 3.0);
      const HostTensor weight = random.normal(DType::kF32, {dims.dim});
      const HostTensor bias = random.normal(DType::kF32, {dims.dim});
      const HostTensor table = random.uniform(DType::kF32, {kTokens, dims.rope}, -1, 1);
      HostTensor kv_rows(DType::kI64, {kTokens});
      const std::vector<int32_t> order = random.permutation(kBlocks * kTokensOfBlock);
      for (int64_t t = 0; t < kTokens; ++t)
        kv_rows.at(t) = t % 4 == 3 ? -1 : order[static_cast<size_t>(t)];
      const DType keys = f8 ? DType::kF8E4M3 : DType::kF32;
      const DeviceTensor values = empty(keys, {kBlocks, kTokensOfBlock, dims.dim});
      const DeviceTensor scales = empty(DType::kF32, {kBlocks, kTokensOfBlock});
      const DeviceTensor k_in = upload(k), w_in = upload(weight), b_in = upload(bias);
      const DeviceTensor t_in = upload(table), rows_in = upload(kv_rows);
      ops::index_append(
          {.k = k_in.view(),
           .weight = w_in.view(),
           .bias = b_in.view(),
           .eps = 1e-6f,
           .table = t_in.view(),
           .kv_rows = rows_in.view(),
           .cache = {.values = values.view(), .scales = f8 ? scales.view() : Tensor()}},
          stream());
      const ref::IndexRows expected = ref::index_keys(k, weight, bias, 1e-6, table, f8);
      const HostTensor expected_keys = times_scale(expected.values, expected.scale);
      const HostTensor got = download(values.view()).reshaped({12, dims.dim});
      const HostTensor got_scale = download(scales.view()).reshaped({12});
      std::vector<bool> written(12);
      for (int64_t t = 0; t < kTokens; ++t) {
        if (kv_rows.at(t) < 0) continue;
        const auto row = static_cast<int64_t>(kv_rows.at(t));
        written[static_cast<size_t>(row)] = true;
        HostTensor scale(DType::kF32, {1}, f8 ? got_scale.at(row) : 1);
        if (f8) {
          EXPECT_EQ(got_scale.at(row), expected.scale.at(t)) << "token " << t;
        }
        expect_close(times_scale(got.rows(row, row + 1), scale), expected_keys.rows(t, t + 1),
                     bounds_of(f8));
      }
      for (int64_t row = 0; row < 12; ++row) {
        EXPECT_EQ(std::isnan(got.at(row, 0)), !written[static_cast<size_t>(row)]) << row;
      }
    }
}

TEST_P(IndexTest, queries_are_rotated_and_weights_carry_their_scale) {
  for (const IndexDims& dims : kIndexDims)
    for (const bool f8 : key_forms()) {
      SCOPED_TRACE(std::to_string(dims.dim) + (f8 ? ", f8" : ", f32"));
      constexpr int64_t kTokens = 3;
      ref::Random random(12);
      const HostTensor q = random.normal(act(), {kTokens, dims.heads, dims.dim}, 2.0);
      const HostTensor w = random.normal(DType::kF32, {kTokens, dims.heads});
      const HostTensor table = random.uniform(DType::kF32, {kTokens, dims.rope}, -1, 1);
      const DeviceTensor q_in = upload(q), w_in = upload(w), t_in = upload(table);
      const DeviceTensor out =
          empty(f8 ? DType::kF8E4M3 : DType::kF32, {kTokens, dims.heads, dims.dim});
      // Without FP8 the model computes queries where they are.
      ops::index_query({.q = q_in.view(),
                        .w = w_in.view(),
                        .table = t_in.view(),
                        .out = f8 ? out.view() : q_in.view(),
                        .weights = w_in.view()},
                       stream());
      const ref::IndexRows expected = ref::index_queries(q, table, f8);
      constexpr Bound kWeights{.abs = 1e-6, .rel = 1e-6, .one_minus_cosine = 1e-11};
      expect_close(download(w_in.view()), ref::index_weights(w, expected, dims.dim),
                   {.f32 = kWeights, .bf16 = kWeights});
      expect_close(times_scale(download(f8 ? out.view() : q_in.view()), expected.scale),
                   times_scale(expected.values, expected.scale), bounds_of(f8));
    }
}

class IndexAppendQueryTest : public IndexFixture {};
INSTANTIATE_TEST_SUITE_P(backends, IndexAppendQueryTest,
                         testing::ValuesIn(backends_with(&ops::Backend::index_append_query)),
                         backend_name);

TEST_P(IndexAppendQueryTest, equals_keys_and_then_queries) {
  // Of which CUDA's warps have 14 vectors of 16 bytes for each lane at most, the last of them a part.
  constexpr int64_t kHidden = 6224;
  for (const IndexDims& dims : kIndexDims)
    for (const int64_t tokens : {0, 1, 6, 9}) {
      SCOPED_TRACE(std::to_string(dims.dim) + ", tokens " + std::to_string(tokens));
      ref::Random random(13);
      const DeviceTensor k = upload(random.normal(act(), {tokens, dims.dim})),
                         weight = upload(random.normal(DType::kF32, {dims.dim})),
                         bias = upload(random.normal(DType::kF32, {dims.dim})),
                         table = upload(random.uniform(DType::kF32, {tokens, dims.rope}, -1, 1)),
                         q = upload(random.normal(act(), {tokens, dims.heads, dims.dim})),
                         x = upload(random.normal(act(), {tokens, kHidden})),
                         heads = upload(random.normal(DType::kBf16, {dims.heads, kHidden})),
                         w = empty(DType::kF32, {tokens, dims.heads});
      HostTensor kv_rows(DType::kI64, {tokens});
      for (int64_t t = 0; t < tokens; ++t) kv_rows.at(t) = t == 2 ? -1 : static_cast<double>(7 - t);
      const DeviceTensor rows = upload(kv_rows);
      struct Results {
        DeviceTensor values, scales, out, weights;
      };
      const auto run = [&](bool in_one_call) {
        Results made{.values = upload(HostTensor(DType::kF8E4M3, {2, 4, dims.dim}, 0)),
                     .scales = upload(HostTensor(DType::kF32, {2, 4}, 0)),
                     .out = empty(DType::kF8E4M3, {tokens, dims.heads, dims.dim}),
                     .weights = empty(DType::kF32, {tokens, dims.heads})};
        const ops::IndexAppendQueryArgs args = {
            .q_a = {},
            .q_norm = {},
            .wq_b = {},
            .x = x.view(),
            .weights_proj = heads.view(),
            .append = {.k = k.view(),
                       .weight = weight.view(),
                       .bias = bias.view(),
                       .table = table.view(),
                       .kv_rows = rows.view(),
                       .cache = {.values = made.values.view(), .scales = made.scales.view()}},
            .query = {.q = q.view(),
                      .w = w.view(),
                      .table = table.view(),
                      .out = made.out.view(),
                      .weights = made.weights.view()}};
        if (in_one_call) {
          ops::index_append_query(args, stream());
        } else {
          ops::linear(ops::weights_product(args), stream());
          ops::index_append(args.append, stream());
          ops::index_query(args.query, stream());
        }
        return made;
      };
      const Results one = run(true), two = run(false);
      EXPECT_EQ(bytes(one.values.view()), bytes(two.values.view()));
      EXPECT_EQ(bytes(one.scales.view()), bytes(two.scales.view()));
      EXPECT_EQ(bytes(one.out.view()), bytes(two.out.view()));
      if (act() == DType::kF32) {
        EXPECT_EQ(bytes(one.weights.view()), bytes(two.weights.view()));
        continue;
      }
      constexpr Bound kWeights{.abs = 1e-6, .rel = 1e-5, .one_minus_cosine = 1e-11};
      expect_close(download(one.weights.view()), download(two.weights.view()),
                   {.f32 = kWeights, .bf16 = kWeights});
    }
}

TEST_P(IndexTest, a_key_that_is_not_finite_stays_visible_in_fp8) {
  // The key is the bias, and the transform of a single value is a row of equal ones.
  for (const double value : {0.0, 3.0, kInfinite, kNotANumber}) {
    const int64_t dim = 128;
    HostTensor bias(DType::kF32, {dim}, 0);
    bias.at(100) = value;
    HostTensor table(DType::kF32, {1, 64}, 0);
    for (int64_t j = 0; j < 32; ++j) table.at(0, j) = 1;
    const DeviceTensor k = upload(HostTensor(act(), {1, dim}, 1.0)),
                       weight = upload(HostTensor(DType::kF32, {dim}, 0)), b = upload(bias),
                       t = upload(table), rows = upload(HostTensor(DType::kI64, {1}, 0));
    const DeviceTensor values = empty(DType::kF8E4M3, {1, 1, dim}),
                       scales = empty(DType::kF32, {1, 1});
    ops::index_append({.k = k.view(),
                       .weight = weight.view(),
                       .bias = b.view(),
                       .table = t.view(),
                       .kv_rows = rows.view(),
                       .cache = {.values = values.view(), .scales = scales.view()}},
                      stream());
    const double scale = download(scales.view()).at(0);
    const HostTensor got = download(values.view());
    if (std::isfinite(value)) {
      EXPECT_EQ(scale, value == 0 ? 0x1p-22 : 0x1p-10);
      EXPECT_NEAR(std::abs(got.at(0)) * scale, value / std::sqrt(128.0), 0.02);
    } else {
      EXPECT_TRUE(std::isnan(got.at(0) * scale)) << value;
    }
  }
}

}  // namespace
}  // namespace fathom::ops_test
