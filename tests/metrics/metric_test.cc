#include "metrics/metric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/rng.h"

namespace fathom::metrics {
namespace {

TEST(Counter, AddsFromManyThreadsWithoutLoss) {
  constexpr int kThreads = 4, kAdds = 20'000;
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < kAdds; ++n) counter.add(2);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 2.0 * kThreads * kAdds);
}

TEST(Counter, FollowsATotalKeptElsewhere) {
  Counter counter;
  counter.set_total(7);
  counter.set_total(9);
  EXPECT_EQ(counter.value(), 9);
}

TEST(Gauge, GoesUpAndDown) {
  Gauge gauge;
  gauge.set(5);
  gauge.add(-7);
  EXPECT_EQ(gauge.value(), -2);
}

TEST(Histogram, PutsAValueOnABoundBelowIt) {
  Histogram histogram({1, 2, 4});
  for (const double value : {0.5, 1.0, 1.001, 2.0, 4.0, 4.001, 1e9}) histogram.observe(value);
  EXPECT_EQ(histogram.snapshot().counts, (std::vector<uint64_t>{2, 2, 1, 2}));
  EXPECT_DOUBLE_EQ(histogram.snapshot().sum, 0.5 + 1 + 1.001 + 2 + 4 + 4.001 + 1e9);
}

TEST(Histogram, CountsRepeatedValuesAtOnce) {
  Histogram histogram({1, 2});
  histogram.observe(1.5, 100);
  EXPECT_EQ(histogram.snapshot().num_observations(), 100u);
  EXPECT_DOUBLE_EQ(histogram.snapshot().mean(), 1.5);
}

TEST(Histogram, GivesPercentilesOfAWindowOnly) {
  Histogram histogram(log_buckets({.first = 0.001, .last = 10, .per_decade = 10}));
  histogram.observe(5.0, 1000);  // long ago
  const HistogramSnapshot before = histogram.snapshot();
  histogram.observe(0.02, 98);
  histogram.observe(0.5, 2);
  const HistogramSnapshot window = histogram.snapshot().since(before);
  EXPECT_EQ(window.num_observations(), 100u);
  EXPECT_NEAR(window.quantile(0.5), 0.02, 0.005);
  EXPECT_NEAR(window.quantile(0.99), 0.5, 0.12);
  EXPECT_NEAR(window.mean(), (98 * 0.02 + 2 * 0.5) / 100, 1e-9);
}

TEST(Histogram, InterpolatesInsideABucket) {
  Histogram histogram({10, 20});
  histogram.observe(15, 4);
  EXPECT_DOUBLE_EQ(histogram.snapshot().quantile(0.25), 12.5);
  EXPECT_DOUBLE_EQ(histogram.snapshot().quantile(0.5), 15);
  EXPECT_DOUBLE_EQ(histogram.snapshot().quantile(1), 20);
}

TEST(Histogram, HasNoPercentilesWithoutObservationsAndStopsAtItsLastBound) {
  Histogram histogram({10, 20});
  EXPECT_EQ(histogram.snapshot().quantile(0.99), 0);
  EXPECT_EQ(histogram.snapshot().mean(), 0);
  histogram.observe(1e6);
  EXPECT_EQ(histogram.snapshot().quantile(0.99), 20);
}

TEST(Histogram, PercentilesOfRandomValuesAreOffByAtMostOneBucket) {
  const uint64_t seed = 20251121;
  SCOPED_TRACE(seed);
  Histogram histogram(log_buckets({.first = 0.0001, .last = 100, .per_decade = 10}));
  std::vector<double> values;
  for (uint64_t i = 0; i < 5000; ++i) {
    const double uniform = (philox(seed, 0, i)[0] + 0.5) / 4294967296.0;
    values.push_back(0.0002 * std::pow(1e5, uniform));
    histogram.observe(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double fraction : {0.01, 0.1, 0.5, 0.9, 0.99, 0.999}) {
    const double exact = values[static_cast<size_t>(fraction * 5000)];
    EXPECT_NEAR(histogram.snapshot().quantile(fraction) / exact, 1, 0.3) << fraction;
  }
}

TEST(Histogram, ObservesFromManyThreadsWithoutLoss) {
  constexpr int kThreads = 4, kObservations = 20'000;
  Histogram histogram({1, 2, 3});
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int n = 0; n < kObservations; ++n) histogram.observe(i + 0.5);
    });
  HistogramSnapshot last = histogram.snapshot();
  for (int n = 0; n < 100; ++n) {
    const HistogramSnapshot now = histogram.snapshot();
    EXPECT_LE(now.since(last).num_observations(), uint64_t{kThreads} * kObservations);
    last = now;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.snapshot().counts, std::vector<uint64_t>(4, kObservations));
}

TEST(LogBuckets, AreRoundedToTwoDigits) {
  EXPECT_EQ(log_buckets({.first = 0.001, .last = 0.1, .per_decade = 5}),
            (std::vector<double>{0.001, 0.0016, 0.0025, 0.004, 0.0063, 0.01, 0.016, 0.025, 0.04,
                                 0.063, 0.1}));
  EXPECT_EQ(log_buckets({.first = 1, .last = 1000, .per_decade = 1}),
            (std::vector<double>{1, 10, 100, 1000}));
}

TEST(HistogramDeathTest, RefusesBoundsThatDoNotRise) {
  EXPECT_DEATH(Histogram({1, 1}), "bound 1 after 1");
  EXPECT_DEATH(Histogram({}), "without buckets");
}

}  // namespace
}  // namespace fathom::metrics
