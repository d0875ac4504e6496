#include "apps/fathom_bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "apps/common/figures.h"

namespace fathom::apps {
namespace {

int peak_concurrency(const std::vector<RequestRecord>& records) {
  std::vector<std::pair<double, int>> changes;
  for (const RequestRecord& record : records) {
    if (!record.ok()) continue;
    changes.emplace_back(record.start, 1);
    changes.emplace_back(record.start + record.latency, -1);
  }
  std::sort(changes.begin(), changes.end());  // at the same moment ends come first
  int now = 0, peak = 0;
  for (const auto& change : changes) peak = std::max(peak, now += change.second);
  return peak;
}

struct Samples {
  std::vector<double> e2e_ms, ttft_ms, tpot_ms, itl_ms;

  void add(const RequestRecord& record) {
    e2e_ms.push_back(record.latency * 1e3);
    ttft_ms.push_back(record.ttft * 1e3);
    if (record.output_tokens > 1) {
      tpot_ms.push_back((record.latency - record.ttft) / (record.output_tokens - 1) * 1e3);
    }
    for (const double gap : record.gaps) itl_ms.push_back(gap * 1e3);
  }
};

}  // namespace

double percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (rank - std::floor(rank));
}

Distribution distribution(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double count = static_cast<double>(values.size());
  Distribution result;
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.std = std::sqrt(squares / count);
  result.median = percentile(values, 50);
  result.p90 = percentile(values, 90);
  result.p95 = percentile(values, 95);
  result.p99 = percentile(values, 99);
  result.max = values.back();
  return result;
}

int ServingMetrics::num_failed() const {
  int count = 0;
  for (const auto& failure : failures) count += failure.second;
  return count;
}

ServingMetrics serving_metrics(const std::vector<RequestRecord>& records, double duration_seconds) {
  ServingMetrics metrics;
  metrics.duration_seconds = duration_seconds;
  Samples samples;
  double latency_sum = 0;
  for (const RequestRecord& record : records) {
    if (!record.ok()) {
      ++metrics.failures[record.error];
      continue;
    }
    ++metrics.completed;
    metrics.total_input_tokens += record.prompt_tokens;
    metrics.total_output_tokens += record.output_tokens;
    latency_sum += record.latency;
    samples.add(record);
  }
  const double input = static_cast<double>(metrics.total_input_tokens);
  const double output = static_cast<double>(metrics.total_output_tokens);
  metrics.request_throughput = per_second(metrics.completed, duration_seconds);
  metrics.input_throughput = per_second(input, duration_seconds);
  metrics.output_throughput = per_second(output, duration_seconds);
  metrics.total_throughput = per_second(input + output, duration_seconds);
  metrics.concurrency = per_second(latency_sum, duration_seconds);
  const std::vector<double> buckets = tokens_per_bucket(records, 1);
  if (!buckets.empty()) {
    metrics.max_output_tokens_per_s = *std::max_element(buckets.begin(), buckets.end());
  }
  metrics.max_concurrent_requests = peak_concurrency(records);
  metrics.e2e_latency_ms = distribution(std::move(samples.e2e_ms));
  metrics.ttft_ms = distribution(std::move(samples.ttft_ms));
  metrics.tpot_ms = distribution(std::move(samples.tpot_ms));
  metrics.itl_ms = distribution(std::move(samples.itl_ms));
  return metrics;
}

std::vector<double> tokens_per_bucket(const std::vector<RequestRecord>& records,
                                      double bucket_seconds) {
  std::vector<double> buckets;
  const auto count_at = [&](double seconds) {
    const size_t bucket = static_cast<size_t>(std::max(0.0, seconds) / bucket_seconds);
    if (bucket >= buckets.size()) buckets.resize(bucket + 1);
    ++buckets[bucket];
  };
  for (const RequestRecord& record : records) {
    if (!record.ok() || record.output_tokens == 0) continue;
    double at = record.start + record.ttft;
    count_at(at);
    for (const double gap : record.gaps) count_at(at += gap);
  }
  return buckets;
}

}  // namespace fathom::apps
