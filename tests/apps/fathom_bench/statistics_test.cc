#include "apps/fathom_bench/statistics.h"

#include <gtest/gtest.h>

namespace fathom::apps {
namespace {

// Known values are numpy's: percentile() with its default method, std() of the population.
TEST(Percentile, lies_between_the_closest_ranks) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(values, 50), 2.5);
  EXPECT_DOUBLE_EQ(percentile(values, 90), 3.7);
  EXPECT_DOUBLE_EQ(percentile(values, 100), 4);
  EXPECT_DOUBLE_EQ(percentile({7}, 99), 7);
  EXPECT_DOUBLE_EQ(percentile({}, 50), 0);
}

TEST(Distribution, of_one_to_a_hundred_has_the_known_figures) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Distribution figures = distribution(values);
  EXPECT_DOUBLE_EQ(figures.mean, 50.5);
  EXPECT_DOUBLE_EQ(figures.median, 50.5);
  EXPECT_NEAR(figures.std, 28.86607004772212, 1e-12);
  EXPECT_NEAR(figures.p90, 90.1, 1e-9);
  EXPECT_NEAR(figures.p95, 95.05, 1e-9);
  EXPECT_NEAR(figures.p99, 99.01, 1e-9);
  EXPECT_DOUBLE_EQ(figures.max, 100);
}

// Two complete answers that overlap for one second, and one that failed.
std::vector<RequestRecord> three_records() {
  RequestRecord first;
  first.prompt_tokens = 10;
  first.output_tokens = 3;
  first.start = 0;
  first.ttft = 0.5;
  first.latency = 2.5;
  first.gaps = {1.0, 1.0};
  RequestRecord second = first;
  second.start = 1.5;
  second.output_tokens = 1;
  second.gaps = {};
  second.latency = 0.5;
  RequestRecord failed;
  failed.prompt_tokens = 99;
  failed.error = "HTTP 429: too many";
  return {first, second, failed};
}

TEST(ServingMetrics, are_sglangs_definitions) {
  const ServingMetrics metrics = serving_metrics(three_records(), 4);
  EXPECT_EQ(metrics.completed, 2);
  EXPECT_EQ(metrics.total_input_tokens, 20);
  EXPECT_EQ(metrics.total_output_tokens, 4);
  EXPECT_DOUBLE_EQ(metrics.request_throughput, 0.5);
  EXPECT_DOUBLE_EQ(metrics.input_throughput, 5);
  EXPECT_DOUBLE_EQ(metrics.output_throughput, 1);
  EXPECT_DOUBLE_EQ(metrics.total_throughput, 6);
  EXPECT_DOUBLE_EQ(metrics.concurrency, 0.75);  // 3 s in flight over 4 s
  EXPECT_DOUBLE_EQ(metrics.e2e_latency_ms.mean, 1500);
  EXPECT_DOUBLE_EQ(metrics.ttft_ms.mean, 500);
  EXPECT_DOUBLE_EQ(metrics.tpot_ms.mean, 1000);  // (2.5 - 0.5) / 2, the one-token answer has none
  EXPECT_DOUBLE_EQ(metrics.itl_ms.p99, 1000);
  EXPECT_EQ(metrics.max_concurrent_requests, 2);
}

TEST(ServingMetrics, count_failures_by_reason_and_nothing_else_of_them) {
  std::vector<RequestRecord> records = three_records();
  records.push_back(records.back());
  records.back().error = "timeout";
  const ServingMetrics metrics = serving_metrics(records, 4);
  EXPECT_EQ(metrics.num_failed(), 2);
  EXPECT_EQ(metrics.failures.at("timeout"), 1);
  EXPECT_EQ(metrics.failures.at("HTTP 429: too many"), 1);
  EXPECT_EQ(metrics.total_input_tokens, 20);
}

TEST(ServingMetrics, of_nothing_are_zero) {
  const ServingMetrics metrics = serving_metrics({}, 0);
  EXPECT_EQ(metrics.completed, 0);
  EXPECT_EQ(metrics.output_throughput, 0);
  EXPECT_EQ(metrics.ttft_ms.p99, 0);
}

TEST(TokensPerBucket, holds_every_token_in_the_second_it_came) {
  // Tokens at 0.5, 1.5 and 2.5 s, and one at 2.0 s.
  EXPECT_EQ(tokens_per_bucket(three_records(), 1), (std::vector<double>{1, 1, 2}));
  EXPECT_EQ(serving_metrics(three_records(), 4).max_output_tokens_per_s, 2);
}

}  // namespace
}  // namespace fathom::apps
