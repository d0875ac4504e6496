#pragma once
// Counter, Gauge and Histogram: the values behind the metrics. A Registry makes and owns them; whoever counts
// keeps a reference.
//
//   Counter& tokens = registry.counter({.name = "fathom:generation_tokens_total", .help = "..."});
//   tokens.add(3);
//   Histogram& ttft = registry.histogram({.name = "fathom:time_to_first_token_seconds", .help = "..."},
//                                        log_buckets({.first = 0.001, .last = 100, .per_decade = 10}));
//   ttft.observe(0.031);
//   const HistogramSnapshot before = ttft.snapshot();  ...  // a second later
//   const double p99_seconds = ttft.snapshot().since(before).quantile(0.99);
//
// All functions are thread-safe and take no lock: a write is one or three relaxed atomic operations, tens of
// nanoseconds. A reader may see a histogram between the two halves of one observation (sum and buckets).

#include <atomic>
#include <cstdint>
#include <vector>

namespace fathom::metrics {

// Only goes up.
class Counter {
 public:
  void add(double amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  // For a total that somebody else keeps. REQUIRES: one writer, and totals that never go down.
  void set_total(double total) { value_.store(total, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void add(double amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// What a histogram had counted at one moment, or between two.
struct HistogramSnapshot {
  std::vector<double> upper_bounds;  // of all buckets but the last, which has none
  std::vector<uint64_t> counts;      // per bucket, not cumulative: upper_bounds.size() + 1
  double sum = 0;

  uint64_t num_observations() const;
  // What was observed after `earlier` was taken. REQUIRES: two snapshots of one histogram, in this order.
  HistogramSnapshot since(const HistogramSnapshot& earlier) const;
  // The value that a fraction `fraction` of the observations does not exceed, taken as spread evenly over
  // their bucket: off by at most the bucket's width. Observations above the last bound count as that bound;
  // 0 without observations.
  double quantile(double fraction) const;
  double mean() const;
};

class Histogram {
 public:
  // REQUIRES: at least one bound, rising. A value belongs to the first bucket whose bound it does not exceed.
  explicit Histogram(std::vector<double> upper_bounds);

  // `count` observations of the same value.
  void observe(double value, uint64_t count = 1);
  HistogramSnapshot snapshot() const;
  const std::vector<double>& upper_bounds() const { return upper_bounds_; }

 private:
  const std::vector<double> upper_bounds_;
  std::vector<std::atomic<uint64_t>> counts_;
  std::atomic<double> sum_{0};
};

struct LogBuckets {
  double first = 0.001, last = 100;
  int per_decade = 5;
};

// Bounds in equal ratios from first to last, rounded to two digits: 5 per decade are 1, 1.6, 2.5, 4, 6.3.
// REQUIRES: 0 < first < last, per_decade in [1, 20].
std::vector<double> log_buckets(const LogBuckets& range);

}  // namespace fathom::metrics
