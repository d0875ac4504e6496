#include "metrics/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace fathom::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Registry, ExposesOneValueUnderAllItsNames) {
  Registry registry(Labels{{"model_name", "demo"}});
  Gauge& running = registry.gauge(
      {.name = "fathom:num_running_requests",
       .aliases = {{.name = "sglang:num_running_reqs"}, {.name = "vllm:num_requests_running"}},
       .help = "Sequences that own a slot."});
  running.set(3);
  EXPECT_EQ(registry.expose(),
            "# HELP fathom:num_running_requests Sequences that own a slot.\n"
            "# TYPE fathom:num_running_requests gauge\n"
            "fathom:num_running_requests{model_name=\"demo\"} 3\n"
            "# HELP sglang:num_running_reqs Sequences that own a slot.\n"
            "# TYPE sglang:num_running_reqs gauge\n"
            "sglang:num_running_reqs{model_name=\"demo\"} 3\n"
            "# HELP vllm:num_requests_running Sequences that own a slot.\n"
            "# TYPE vllm:num_requests_running gauge\n"
            "vllm:num_requests_running{model_name=\"demo\"} 3\n");
}

TEST(Registry, GroupsTheSeriesOfAFamilyAndLetsAnAliasNameItsLabelsDifferently) {
  Registry registry;
  const auto count = [&](const char* reason) -> Counter& {
    return registry.counter({.name = "fathom:requests_total",
                             .aliases = {{.name = "vllm:request_success_total",
                                          .labels = Labels{{"finished_reason", reason}}}},
                             .help = "Requests that ended.",
                             .labels = {{"finish_reason", reason}}});
  };
  count("stop").add(2);
  count("length").add(5);
  EXPECT_EQ(registry.expose(),
            "# HELP fathom:requests_total Requests that ended.\n"
            "# TYPE fathom:requests_total counter\n"
            "fathom:requests_total{finish_reason=\"stop\"} 2\n"
            "fathom:requests_total{finish_reason=\"length\"} 5\n"
            "# HELP vllm:request_success_total Requests that ended.\n"
            "# TYPE vllm:request_success_total counter\n"
            "vllm:request_success_total{finished_reason=\"stop\"} 2\n"
            "vllm:request_success_total{finished_reason=\"length\"} 5\n");
}

TEST(Registry, WritesAHistogramAsCumulativeBuckets) {
  Registry registry;
  Histogram& histogram = registry.histogram({.name = "t_seconds", .help = "T."}, {0.1, 0.5});
  histogram.observe(0.05);
  histogram.observe(0.25, 2);
  histogram.observe(2);
  EXPECT_EQ(registry.expose(),
            "# HELP t_seconds T.\n"
            "# TYPE t_seconds histogram\n"
            "t_seconds_count 4\n"
            "t_seconds_sum 2.55\n"
            "t_seconds_bucket{le=\"0.1\"} 1\n"
            "t_seconds_bucket{le=\"0.5\"} 3\n"
            "t_seconds_bucket{le=\"+Inf\"} 4\n");
}

TEST(Registry, EscapesLabelValuesAndKeepsLargeIntegersExact) {
  Registry registry(Labels{{"model_name", "a\"b\\c\nd"}});
  registry.counter({.name = "n_total"}).add(123456789012345);
  EXPECT_THAT(registry.expose(),
              HasSubstr("n_total{model_name=\"a\\\"b\\\\c\\nd\"} 123456789012345\n"));
}

TEST(Registry, RefreshesCollectedValuesUntilTheirCollectorIsGone) {
  Registry registry;
  Gauge& gauge = registry.gauge({.name = "g"});
  int value = 0;
  {
    const Registry::Collector collector = registry.add_collector([&] { gauge.set(++value); });
    EXPECT_THAT(registry.expose(), HasSubstr("g 1\n"));
    EXPECT_THAT(registry.expose(), HasSubstr("g 2\n"));
  }
  EXPECT_THAT(registry.expose(), HasSubstr("g 2\n"));
}

TEST(Registry, AMovedCollectorStaysRegisteredOnce) {
  Registry registry;
  int calls = 0;
  Registry::Collector first = registry.add_collector([&] { ++calls; });
  Registry::Collector second = std::move(first);
  registry.expose();
  second = Registry::Collector();
  registry.expose();
  EXPECT_EQ(calls, 1);
}

TEST(Registry, ExposesWhileOthersCountAndRegister) {
  Registry registry;
  Counter& counter = registry.counter({.name = "a_total"});
  Histogram& histogram = registry.histogram({.name = "h"}, {1, 2});
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    do {
      counter.add();
      histogram.observe(1.5);
    } while (!stop);
  });
  for (int i = 0; i < 50; ++i) {
    registry.gauge({.name = "g" + std::to_string(i)});
    EXPECT_THAT(registry.expose(), HasSubstr("g" + std::to_string(i) + " 0\n"));
  }
  stop = true;
  writer.join();
  EXPECT_THAT(registry.expose(), Not(HasSubstr("a_total 0\n")));
  EXPECT_EQ(counter.value(), static_cast<double>(histogram.snapshot().num_observations()));
}

TEST(RegistryDeathTest, RefusesBadNamesKindsAndRepeatedSeries) {
  Registry registry(Labels{{"model_name", "demo"}});
  registry.counter({.name = "a_total"});
  EXPECT_DEATH(registry.counter({.name = "a_total"}), "twice with the same labels");
  EXPECT_DEATH(registry.gauge({.name = "a_total", .labels = {{"x", "y"}}}), "another kind");
  EXPECT_DEATH(registry.gauge({.name = "9a"}), "metric name");
  EXPECT_DEATH(registry.gauge({.name = "b", .labels = {{"le:x", ""}}}), "label \"le:x\"");
  EXPECT_DEATH(registry.gauge({.name = "b", .labels = {{"model_name", ""}}}), "model_name twice");
}

}  // namespace
}  // namespace fathom::metrics
