// Random weights: seeded, the same for any number of threads, with the spread that was asked for.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "weights/loader.h"

namespace fathom::weights {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::F8E4M3;
using tensor::Tensor;

constexpr int64_t kRows = 1100, kColumns = 2050;  // more than one piece, partial blocks

struct Weights {
  std::vector<float> f32 = std::vector<float>(kRows * kColumns);
  std::vector<Bf16> bf16 = std::vector<Bf16>(kRows * kColumns);
  std::vector<F8E4M3> f8 = std::vector<F8E4M3>(kRows * kColumns);
  std::vector<float> scale = std::vector<float>(9 * 17);
  std::vector<Bf16> norm = std::vector<Bf16>(kColumns);
  bool found = false;

  std::vector<Parameter> parameters() {
    return {{.name = "f32",
             .data = Tensor::contiguous(f32.data(), DType::kF32, {kRows, kColumns}),
             .dummy_stddev = 0.5f},
            {.name = "bf16",
             .data = Tensor::contiguous(bf16.data(), DType::kBf16, {kRows, kColumns}),
             .optional = true,
             .found = &found},
            {.name = "f8.weight",
             .data = Tensor::contiguous(f8.data(), DType::kF8E4M3, {kRows, kColumns}),
             .scale = Tensor::contiguous(scale.data(), DType::kF32, {9, 17})},
            {.name = "norm",
             .data = Tensor::contiguous(norm.data(), DType::kBf16, {kColumns}),
             .dummy_stddev = 0}};
  }

  std::string bytes() const {
    std::string all;
    const auto add = [&](const auto& v) {
      all.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(v[0]));
    };
    add(f32), add(bf16), add(f8), add(scale), add(norm);
    return all;
  }
};

template <class Value>
void expect_spread(int64_t count, const Value& value, double stddev) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double v = value(i);
    ASSERT_TRUE(std::isfinite(v));
    sum += v, squares += v * v;
  }
  const double mean = sum / static_cast<double>(count);
  EXPECT_NEAR(mean, 0, 0.02 * stddev);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)), stddev, 0.02 * stddev);
}

TEST(Dummy, has_the_spread_that_was_asked_for) {
  Weights weights;
  ASSERT_TRUE(fill_dummy(weights.parameters(), {}));
  EXPECT_TRUE(weights.found);
  expect_spread(
      kRows * kColumns, [&](int64_t i) { return weights.f32[static_cast<size_t>(i)]; }, 0.5);
  expect_spread(
      kRows * kColumns,
      [&](int64_t i) { return tensor::to_float(weights.bf16[static_cast<size_t>(i)]); }, 0.02);
  expect_spread(
      kRows * kColumns,
      [&](int64_t i) {
        const int64_t block = i / kColumns / 128 * 17 + i % kColumns / 128;
        return tensor::to_float(weights.f8[static_cast<size_t>(i)]) *
               weights.scale[static_cast<size_t>(block)];
      },
      0.02);
  for (const Bf16 one : weights.norm) EXPECT_EQ(tensor::to_float(one), 1.0f);
  std::set<uint8_t> patterns;
  for (const F8E4M3 v : weights.f8) patterns.insert(v.bits);
  EXPECT_EQ(patterns.size(), 254u);  // all but the two NaN
}

TEST(Dummy, is_the_same_for_any_number_of_threads_and_differs_by_seed_and_name) {
  Weights one, four, other;
  ASSERT_TRUE(fill_dummy(one.parameters(), {.num_threads = 1, .dummy_seed = 9}));
  ASSERT_TRUE(fill_dummy(four.parameters(), {.num_threads = 4, .dummy_seed = 9}));
  ASSERT_TRUE(fill_dummy(other.parameters(), {.num_threads = 4, .dummy_seed = 10}));
  EXPECT_EQ(one.bytes(), four.bytes());
  EXPECT_NE(one.bytes(), other.bytes());
  std::vector<float> a(5000), b(5000);
  ASSERT_TRUE(fill_dummy({{.name = "a", .data = Tensor::contiguous(a.data(), DType::kF32, {5000})},
                          {.name = "b", .data = Tensor::contiguous(b.data(), DType::kF32, {5000})}},
                         {}));
  EXPECT_NE(a, b);
}

TEST(Dummy, fills_strided_rows_and_nothing_else) {
  std::vector<float> fused(300 * 64, -1.0f), alone(300 * 20);
  const Tensor whole = Tensor::contiguous(fused.data(), DType::kF32, {300, 64});
  ASSERT_TRUE(fill_dummy({{.name = "w", .data = whole.slice(1, 8, 28)}}, {}));
  ASSERT_TRUE(fill_dummy(
      {{.name = "w", .data = Tensor::contiguous(alone.data(), DType::kF32, {300, 20})}}, {}));
  for (size_t row = 0; row < 300; ++row) {
    for (size_t column = 0; column < 64; ++column) {
      const bool inside = column >= 8 && column < 28;
      ASSERT_EQ(fused[row * 64 + column], inside ? alone[row * 20 + column - 8] : -1.0f);
    }
  }
}

TEST(Dummy, reports_all_bytes) {
  Weights weights;
  LoadProgress last;
  ASSERT_TRUE(
      fill_dummy(weights.parameters(),
                 {.num_threads = 2, .on_progress = [&](const LoadProgress& p) { last = p; }}));
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_EQ(last.bytes_total, kRows * kColumns * 7 + kColumns * 2 + 9 * 17 * 4);
}

}  // namespace
}  // namespace fathom::weights
