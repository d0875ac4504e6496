#pragma once
// Figures of a load test, defined as SGLang's bench_serving defines them.
//
//   ServingMetrics metrics = serving_metrics(result.records, result.duration_seconds);
//
// Pure functions. Times are in milliseconds, rates per second.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/fathom_bench/wire.h"

namespace fathom::apps {

struct Distribution {
  double mean = 0, median = 0, std = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};

// Linear between the closest ranks, as numpy does it. REQUIRES: sorted, 0 <= percent <= 100. 0 when empty.
double percentile(const std::vector<double>& sorted, double percent);
Distribution distribution(std::vector<double> values);

struct ServingMetrics {
  int completed = 0;
  double duration_seconds = 0;
  int64_t total_input_tokens = 0, total_output_tokens = 0;
  double request_throughput = 0, input_throughput = 0, output_throughput = 0, total_throughput = 0;
  // Most tokens that came in one second, counted from the first request in whole seconds.
  double max_output_tokens_per_s = 0;
  int max_concurrent_requests = 0;
  double concurrency = 0;  // mean number in flight
  Distribution e2e_latency_ms, ttft_ms, tpot_ms, itl_ms;
  std::map<std::string, int> failures;  // reason -> how many
  int num_failed() const;
};

ServingMetrics serving_metrics(const std::vector<RequestRecord>& records, double duration_seconds);

// Token arrivals of all complete answers per bucket, from the beginning of the run.
std::vector<double> tokens_per_bucket(const std::vector<RequestRecord>& records,
                                      double bucket_seconds);

}  // namespace fathom::apps
