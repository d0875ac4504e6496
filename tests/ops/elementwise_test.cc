// embedding, gather_rows, add_rows, rms_norm, silu_mul, rope_table, rope.

#include <cmath>
#include <limits>

#include "ops/add_rows.h"
#include "ops/embedding.h"
#include "ops/gather_rows.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/silu_mul.h"
#include "tests/ops/device.h"
#include "tests/ref/oracle.h"

namespace fathom::ops_test {
namespace {

class ElementwiseTest : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(backends, ElementwiseTest, testing::ValuesIn(tested_backends()),
                         backend_name);

constexpr Bounds kRounding{.f32 = {.abs = 1e-6, .rel = 2e-6, .one_minus_cosine = 1e-11},
                           .bf16 = {.abs = 1e-3, .rel = 8e-3, .one_minus_cosine = 1e-5}};
constexpr Bounds kExact{};
const std::vector<int64_t> kTokenCounts = {0, 1, 61, 69};

TEST_P(ElementwiseTest, embedding_copies_rows_of_the_table_into_strided_rows) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    if (!backend().supports("embedding", dtype)) continue;
    for (const int64_t tokens : kTokenCounts) {
      ref::Random random(1);
      const HostTensor table = random.normal(dtype, {301, 69});
      const HostTensor ids = random.integers(DType::kI32, {tokens}, 0, 301);
      const DeviceTensor device_ids = upload(ids), device_table = upload(table);
      const DeviceTensor wide = empty(act(), {tokens, 100});
      const Tensor out = wide.view().slice(1, 31, 100);
      ops::embedding({.ids = device_ids.view(), .table = device_table.view(), .out = out},
                     stream());
      HostTensor expected(act(), {tokens, 69});
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t i = 0; i < 69; ++i) {
          expected.at(t, i) = ref::round_to(act(), table.at(static_cast<int64_t>(ids.at(t)), i));
        }
      }
      expect_close(download(out), expected, kExact);
    }
  }
}

// As ranks hold it: each has the rows of its part and zeros for the others'.
TEST_P(ElementwiseTest, embedding_of_a_part_of_the_table_is_zero_where_the_row_is_elsewhere) {
  ref::Random random(3);
  const HostTensor table = random.normal(DType::kF32, {100, 69});
  const HostTensor ids = random.integers(DType::kI32, {61}, 0, 300);
  const DeviceTensor device_ids = upload(ids), device_table = upload(table);
  const DeviceTensor out = empty(act(), {61, 69});
  ops::embedding({.ids = device_ids.view(),
                  .table = device_table.view(),
                  .out = out.view(),
                  .first_id = 100,
                  .vocab_size = 300},
                 stream());
  HostTensor expected(act(), {61, 69});
  int num_here = 0;
  for (int64_t t = 0; t < 61; ++t) {
    const auto row = static_cast<int64_t>(ids.at(t)) - 100;
    const bool is_here = row >= 0 && row < 100;
    num_here += is_here;
    for (int64_t i = 0; i < 69; ++i)
      expected.at(t, i) = is_here ? ref::round_to(act(), table.at(row, i)) : 0.0;
  }
  EXPECT_GT(num_here, 5);
  EXPECT_LT(num_here, 55);
  expect_close(download(out.view()), expected, kExact);
}

TEST_P(ElementwiseTest, gather_rows_picks_rows_in_any_order_and_repeatedly) {
  ref::Random random(2);
  const HostTensor x = random.normal(act(), {69, 61});
  for (const int64_t outputs : {0, 1, 200}) {
    const HostTensor rows = random.integers(DType::kI32, {outputs}, 0, 69);
    const DeviceTensor device_x = upload(x), device_rows = upload(rows);
    const DeviceTensor out = empty(act(), {outputs, 40});
    ops::gather_rows(
        {.x = device_x.view().slice(1, 21, 61), .rows = device_rows.view(), .out = out.view()},
        stream());
    HostTensor expected(act(), {outputs, 40});
    for (int64_t i = 0; i < outputs; ++i) {
      for (int64_t k = 0; k < 40; ++k) {
        expected.at(i, k) = x.at(static_cast<int64_t>(rows.at(i)), 21 + k);
      }
    }
    expect_close(download(out.view()), expected, kExact);
  }
}

TEST_P(ElementwiseTest, add_rows_rounds_once_and_takes_strided_rows) {
  ref::Random random(3);
  for (const int64_t dim : {1, 69, 2048, 7168}) {
    for (const int64_t rows : {0, 1, 37}) {
      const HostTensor x = random.normal(act(), {rows, dim + 8}, 3.0);
      const HostTensor old = random.normal(act(), {rows, dim + 3});
      const DeviceTensor device_x = upload(x), sum = upload(old);
      ops::add_rows({.x = device_x.view().slice(1, 8, dim + 8), .sum = sum.view().slice(1, 0, dim)},
                    stream());
      HostTensor expected = old;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t k = 0; k < dim; ++k)
          expected.at(i, k) = ref::round_to(act(), old.at(i, k) + x.at(i, 8 + k));
      expect_close(download(sum.view()), expected, kExact);
    }
  }
}

TEST_P(ElementwiseTest, rms_norm_matches_float64_for_published_and_odd_widths) {
  for (const int64_t dim : {1, 61, 69, 512, 1536, 2046, 7168}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      if (!backend().supports("rms_norm", dtype)) continue;
      ref::Random random(static_cast<uint64_t>(dim));
      SCOPED_TRACE(dim);
      const HostTensor x = random.normal(act(), {7, dim}, 3.0);
      const HostTensor weight = random.normal(dtype, {dim});
      const DeviceTensor device_x = upload(x), device_weight = upload(weight);
      const DeviceTensor out = empty(act(), {7, dim});
      ops::rms_norm({.x = device_x.view(),
                     .weight = device_weight.view(),
                     .eps = 1e-6f,
                     .residual = {},
                     .out = out.view()},
                    stream());
      expect_close(download(out.view()), ref::rms_norm(x, weight, 1e-6), kRounding);
    }
  }
}

TEST_P(ElementwiseTest, rms_norm_adds_the_residual_first_and_may_write_over_its_input) {
  ref::Random random(4);
  for (const int64_t rows : kTokenCounts) {
    const HostTensor x = random.normal(act(), {rows, 2046}), weight = random.normal(act(), {2046});
    const HostTensor residual = random.normal(act(), {rows, 2046}, 5.0);
    const DeviceTensor device_x = upload(x), device_weight = upload(weight);
    const DeviceTensor device_residual = upload(residual);
    ops::rms_norm({.x = device_x.view(),
                   .weight = device_weight.view(),
                   .eps = 1e-5f,
                   .residual = device_residual.view(),
                   .out = device_x.view()},
                  stream());
    HostTensor sum = x;
    for (size_t i = 0; i < sum.values.size(); ++i) {
      sum.values[i] = ref::round_to(act(), sum.values[i] + residual.values[i]);
    }
    expect_close(download(device_residual.view()), sum, kRounding);
    expect_close(download(device_x.view()), ref::rms_norm(sum, weight, 1e-5), kRounding);
  }
}

TEST_P(ElementwiseTest, rms_norm_of_zeros_is_zero_and_a_nan_stays_in_its_row) {
  HostTensor x(act(), {3, 69}, 0.0);
  x.at(1, 5) = std::numeric_limits<double>::quiet_NaN();
  const HostTensor weight(act(), {69}, 1.0);
  const DeviceTensor device_x = upload(x), device_weight = upload(weight);
  const DeviceTensor out = empty(act(), {3, 69});
  ops::rms_norm(
      {.x = device_x.view(), .weight = device_weight.view(), .residual = {}, .out = out.view()},
      stream());
  HostTensor expected(act(), {3, 69}, 0.0);
  for (int64_t i = 0; i < 69; ++i) expected.at(1, i) = std::nan("");
  expect_close(download(out.view()), expected, kExact);
}

TEST_P(ElementwiseTest, silu_mul_matches_float64_also_far_from_zero) {
  ref::Random random(5);
  for (const int64_t tokens : kTokenCounts) {
    for (const int64_t inter : {1, 61, 2046}) {
      HostTensor gate_up = random.normal(act(), {tokens, 2, inter}, 4.0);
      if (tokens > 0) gate_up.at(0, 0, 0) = ref::round_to(act(), -200.0);  // exp overflows
      const DeviceTensor device = upload(gate_up);
      const DeviceTensor out = empty(act(), {tokens, inter});
      ops::silu_mul({.gate_up = device.view(), .out = out.view()}, stream());
      expect_close(download(out.view()), ref::silu_mul(gate_up), kRounding);
    }
  }
}

TEST_P(ElementwiseTest, rope_table_rounds_angles_to_float32_far_into_the_context) {
  ref::Random random(6);
  HostTensor inv_freq(DType::kF32, {32});
  for (int64_t j = 0; j < 32; ++j) {
    inv_freq.at(j) = ref::round_to(DType::kF32, std::pow(10000.0, -static_cast<double>(j) / 32));
  }
  for (const int64_t tokens : kTokenCounts) {
    const HostTensor positions = random.integers(DType::kI32, {tokens}, 0, 163840);
    const DeviceTensor device_positions = upload(positions), device_freq = upload(inv_freq);
    const DeviceTensor table = empty(DType::kF32, {tokens, 64});
    ops::rope_table({.positions = device_positions.view(),
                     .inv_freq = device_freq.view(),
                     .magnitude = 1.25f,
                     .table = table.view()},
                    stream());
    constexpr Bound kTable{.abs = 1e-6, .rel = 1e-6, .one_minus_cosine = 1e-11};
    expect_close(download(table.view()), ref::rope_table(positions, inv_freq, 1.25),
                 {.f32 = kTable, .bf16 = kTable});
  }
}

// Heads that begin at whole pieces of 16 bytes, at whole pairs only, and at single values.
TEST_P(ElementwiseTest, rope_rotates_interleaved_pairs_inside_strided_heads) {
  ref::Random random(7);
  for (const int64_t width : {192, 190, 191})
    for (const int64_t tokens : kTokenCounts) {
      const int64_t begin = width - 64;
      const HostTensor x = random.normal(act(), {tokens, 3, width});
      const HostTensor table = random.uniform(DType::kF32, {tokens, 64}, -1, 1);
      const DeviceTensor device_x = upload(x), device_table = upload(table);
      ops::rope({.x = device_x.view().slice(2, begin, width), .table = device_table.view()},
                stream());
      const HostTensor actual = download(device_x.view());
      expect_close(actual.columns(begin, width), ref::rope(x.columns(begin, width), table),
                   kRounding);
      expect_close(actual.columns(0, begin), x.columns(0, begin), kExact);
    }
}

TEST_P(ElementwiseTest, rows_do_not_depend_on_the_batch) {
  ref::Random random(8);
  const HostTensor x = random.normal(act(), {69, 1536}), weight = random.normal(act(), {1536});
  const DeviceTensor device_x = upload(x), device_weight = upload(weight);
  const DeviceTensor out = empty(act(), {69, 1536}), one = empty(act(), {1, 1536});
  const DeviceTensor gated = empty(act(), {69, 768}), one_gated = empty(act(), {1, 768});
  const auto run = [&](const Tensor& rows, const Tensor& norm_out, const Tensor& silu_out) {
    ops::rms_norm({.x = rows, .weight = device_weight.view(), .residual = {}, .out = norm_out},
                  stream());
    ops::silu_mul({.gate_up = rows.reshape({rows.dim(0), 2, 768}), .out = silu_out}, stream());
  };
  run(device_x.view(), out.view(), gated.view());
  for (const int64_t row : {0, 33, 68}) {
    run(device_x.view().slice(0, row, row + 1), one.view(), one_gated.view());
    EXPECT_EQ(bytes(one.view()), bytes(out.view().slice(0, row, row + 1))) << row;
    EXPECT_EQ(bytes(one_gated.view()), bytes(gated.view().slice(0, row, row + 1))) << row;
  }
}

}  // namespace
}  // namespace fathom::ops_test
