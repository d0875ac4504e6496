#include "metrics/metric.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace fathom::metrics {

uint64_t HistogramSnapshot::num_observations() const {
  uint64_t total = 0;
  for (const uint64_t count : counts) total += count;
  return total;
}

HistogramSnapshot HistogramSnapshot::since(const HistogramSnapshot& earlier) const {
  FATHOM_CHECK(counts.size() == earlier.counts.size(),
               counts.size() << " buckets against " << earlier.counts.size());
  HistogramSnapshot difference = *this;
  for (size_t i = 0; i < counts.size(); ++i) {
    FATHOM_CHECK(counts[i] >= earlier.counts[i], "bucket " << i << " shrank: snapshots swapped");
    difference.counts[i] -= earlier.counts[i];
  }
  difference.sum -= earlier.sum;
  return difference;
}

double HistogramSnapshot::quantile(double fraction) const {
  const uint64_t total = num_observations();
  if (total == 0) return 0;
  const double rank = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(total);
  double below = 0;
  for (size_t i = 0; i < upper_bounds.size(); ++i) {
    const double count = static_cast<double>(counts[i]);
    if (count > 0 && below + count >= rank) {
      const double lower = i == 0 ? std::min(0.0, upper_bounds[0]) : upper_bounds[i - 1];
      return lower + (upper_bounds[i] - lower) * (rank - below) / count;
    }
    below += count;
  }
  return upper_bounds.back();
}

double HistogramSnapshot::mean() const {
  const uint64_t total = num_observations();
  return total == 0 ? 0 : sum / static_cast<double>(total);
}

Histogram::Histogram(std::vector<double> upper_bounds)
    : upper_bounds_(std::move(upper_bounds)), counts_(upper_bounds_.size() + 1) {
  FATHOM_CHECK(!upper_bounds_.empty(), "a histogram without buckets");
  for (size_t i = 1; i < upper_bounds_.size(); ++i)
    FATHOM_CHECK(upper_bounds_[i - 1] < upper_bounds_[i],
                 "bound " << upper_bounds_[i] << " after " << upper_bounds_[i - 1]);
}

void Histogram::observe(double value, uint64_t count) {
  const auto bound = std::lower_bound(upper_bounds_.begin(), upper_bounds_.end(), value);
  const auto bucket = static_cast<size_t>(bound - upper_bounds_.begin());
  counts_[bucket].fetch_add(count, std::memory_order_relaxed);
  sum_.fetch_add(value * static_cast<double>(count), std::memory_order_relaxed);
}

HistogramSnapshot Histogram::snapshot() const {
  HistogramSnapshot snapshot{.upper_bounds = upper_bounds_, .counts = {}, .sum = 0};
  snapshot.counts.reserve(counts_.size());
  for (const std::atomic<uint64_t>& count : counts_)
    snapshot.counts.push_back(count.load(std::memory_order_relaxed));
  snapshot.sum = sum_.load(std::memory_order_relaxed);
  return snapshot;
}

std::vector<double> log_buckets(const LogBuckets& range) {
  FATHOM_CHECK(range.first > 0 && range.first < range.last && range.per_decade >= 1 &&
                   range.per_decade <= 20,
               "buckets from " << range.first << " to " << range.last << ", " << range.per_decade
                               << " per decade");
  const double decades = std::log10(range.last / range.first);
  const int num_steps = static_cast<int>(std::ceil(decades * range.per_decade - 1e-9));
  std::vector<double> bounds;
  for (int step = 0; step <= num_steps; ++step) {
    const double exact = range.first * std::pow(10.0, step / static_cast<double>(range.per_decade));
    // Two digits keep the text short and the same on every machine. Division by a power of ten rounds once.
    const int exponent = static_cast<int>(std::floor(std::log10(exact) + 1e-9)) - 1;
    const double digits = std::round(exact / std::pow(10.0, exponent));
    bounds.push_back(exponent < 0 ? digits / std::pow(10.0, -exponent)
                                  : digits * std::pow(10.0, exponent));
  }
  return bounds;
}

}  // namespace fathom::metrics
