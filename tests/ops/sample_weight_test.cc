// The weights and integer sums of sampling (ops/sample_weight.h, base/rng.h), which every backend repeats.

#include "ops/sample_weight.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace fathom::ops_test {
namespace {

using ops::sample_factor;
using ops::sample_share;
using ops::sample_weight;

TEST(SampleWeight, is_the_probability_relative_to_the_largest) {
  for (const float temperature : {0.1f, 0.7f, 1.0f, 2.0f, 50.0f}) {
    const float factor = sample_factor(temperature);
    for (float logit = 9.0f; logit > 9.0f - 25.0f * temperature; logit -= 0.0137f * temperature) {
      const double exact =
          std::exp((static_cast<double>(logit) - 9.0) / static_cast<double>(temperature));
      // 2^-23 of 2^f, and what the rounding of the exponent (at most 36, so 2^-19 off) makes of it.
      EXPECT_NEAR(static_cast<double>(sample_weight(logit, 9.0f, factor)) / exact, 1.0, 3e-6)
          << "logit " << logit << ", temperature " << temperature;
    }
  }
}

// Computed by hand from the steps in the header, in another language.
TEST(SampleWeight, has_these_bits) {
  EXPECT_EQ(sample_weight(0.0f, 0.0f, sample_factor(1.0f)), 1.0f);
  EXPECT_EQ(sample_weight(-1.0f, 0.0f, sample_factor(1.0f)), 0x1.78b564p-2f);
  EXPECT_EQ(sample_weight(0.3f, 2.0f, sample_factor(0.7f)), 0x1.691d46p-4f);
  EXPECT_EQ(sample_weight(-20.0f, 1.5f, sample_factor(1.3f)), 0x1.1a189ep-24f);
}

TEST(SampleWeight, is_one_at_the_largest_and_nothing_far_below) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float temperature : {1e-44f, 1e-30f, 1.0f, 1e30f, kInfinity}) {
    const float factor = sample_factor(temperature);
    for (const float largest : {-3e38f, -1.0f, 0.0f, 3e38f})
      EXPECT_EQ(sample_weight(largest, largest, factor), 1.0f) << temperature;
    EXPECT_EQ(sample_weight(-kInfinity, 1.0f, factor), 0.0f) << temperature;
  }
  EXPECT_EQ(sample_weight(-40.0f, 0.0f, 1.0f), 0.0f);
  EXPECT_GT(sample_weight(-39.9f, 0.0f, 1.0f), 0.0f);
  EXPECT_EQ(sample_weight(-3e38f, 3e38f, sample_factor(1.0f)), 0.0f);
}

TEST(SampleWeight, shares_are_whole_parts_of_two_to_the_fortieth) {
  EXPECT_EQ(sample_share(1.0f), uint64_t{1} << 40);
  EXPECT_EQ(sample_share(0.0f), 0u);
  EXPECT_EQ(sample_share(0x1.8p-40f), 1u);
  EXPECT_EQ(sample_share(0x1.fffffep-41f), 0u);
  EXPECT_EQ(sample_share(0x1.000002p-1f), (uint64_t{1} << 39) + (uint64_t{1} << 16));
}

TEST(SampleWeight, top_p_asks_for_its_part_rounded_up) {
  EXPECT_EQ(ops::sample_top_p_share(0.5f, 4), 2u);
  EXPECT_EQ(ops::sample_top_p_share(0.5f, 5), 3u);
  EXPECT_EQ(ops::sample_top_p_share(0.0f, 5), 0u);
  EXPECT_EQ(ops::sample_top_p_share(0x1.fffffep-1f, uint64_t{1} << 57),
            (uint64_t{1} << 57) - (uint64_t{1} << 33));
}

TEST(SampleWeight, bits_scale_to_any_sum_as_in_128_bits) {
  uint64_t state = 1;
  for (int i = 0; i < 10000; ++i) {
    const uint64_t bits = state = mix64(state), n = mix64(state + 1) >> (i % 64);
    const auto product = static_cast<unsigned __int128>(bits) * n;
    EXPECT_EQ(scale_bits(bits, n), static_cast<uint64_t>(product >> 64));
  }
  EXPECT_EQ(scale_bits(~uint64_t{0}, 7), 6u);
  EXPECT_EQ(random_bits({0x01234567u, 0x89abcdefu, 5, 6}), 0x0123456789abcdefu);
}

}  // namespace
}  // namespace fathom::ops_test
