#include "server/stats_history.h"

#include <gtest/gtest.h>

#include <atomic>

namespace fathom::server {
namespace {

const std::vector<double> kBounds = {0.01, 0.02, 0.05, 0.1};

StatsReading reading_at(double unix_seconds) {
  StatsReading reading;
  reading.unix_seconds = unix_seconds;
  reading.engine.num_blocks = 100;
  reading.engine.num_free_blocks = 100;
  reading.first_token = {kBounds, {0, 0, 0, 0, 0}};
  reading.inter_token = {kBounds, {0, 0, 0, 0, 0}};
  return reading;
}

json::Value samples_of(const StatsHistory& history, double since = 0) {
  return history.to_json(1000, since)["samples"];
}

TEST(StatsHistory, the_first_reading_is_no_sample_yet) {
  StatsHistory history({.model = "demo"});
  history.add(reading_at(100));
  const json::Value value = history.to_json(100.5, 0);
  EXPECT_EQ(value["model"], "demo");
  EXPECT_EQ(value["interval_s"], 1);
  EXPECT_EQ(value["now"], 100.5);
  EXPECT_TRUE(value["samples"].empty());
  EXPECT_EQ(value["current"]["running"], 0);
}

TEST(StatsHistory, rates_are_differences_over_the_time_between_two_readings) {
  StatsHistory history({.model = "demo"});
  history.add(reading_at(100));
  StatsReading next = reading_at(102);
  next.engine.num_prompt_tokens = 300;
  next.engine.num_output_tokens = 50;
  next.engine.num_running = 7;
  next.engine.num_waiting = 3;
  next.engine.num_free_blocks = 40;
  next.engine.num_cached_blocks = 35;
  history.add(next);
  const json::Value samples = samples_of(history);
  ASSERT_EQ(samples.size(), 1);
  EXPECT_EQ(samples[0]["t"], 102);
  EXPECT_EQ(samples[0]["prompt_tokens_per_s"], 150);
  EXPECT_EQ(samples[0]["generation_tokens_per_s"], 25);
  EXPECT_EQ(samples[0]["running"], 7);
  EXPECT_EQ(samples[0]["queued"], 3);
  EXPECT_EQ(samples[0]["kv_usage"], 0.25);
}

TEST(StatsHistory, the_hit_rate_is_null_without_prompts_and_covers_the_window) {
  StatsHistory history({.model = "demo", .window_samples = 2});
  history.add(reading_at(1));
  history.add(reading_at(2));
  StatsReading reading = reading_at(3);
  reading.engine.num_prompt_tokens = 200;
  reading.engine.num_cached_tokens = 50;
  history.add(reading);
  for (int second = 4; second <= 6; ++second) {
    reading.unix_seconds = second;
    history.add(reading);
  }
  const json::Value samples = samples_of(history);
  ASSERT_EQ(samples.size(), 5);
  EXPECT_TRUE(samples[0]["cache_hit_rate"].is_null());
  EXPECT_EQ(samples[1]["cache_hit_rate"], 0.25);
  EXPECT_EQ(samples[2]["cache_hit_rate"], 0.25);
  EXPECT_TRUE(samples[3]["cache_hit_rate"].is_null()) << "the prompts left the window";
}

TEST(StatsHistory, keeps_only_the_last_samples_and_answers_since) {
  StatsHistory history({.model = "demo", .capacity_samples = 5});
  for (int second = 1; second <= 20; ++second) history.add(reading_at(second));
  const json::Value all = samples_of(history);
  ASSERT_EQ(all.size(), 5);
  EXPECT_EQ(all[0]["t"], 16);
  EXPECT_EQ(all[4]["t"], 20);
  EXPECT_EQ(samples_of(history, 18).size(), 2);
  EXPECT_EQ(samples_of(history, 20).size(), 0);
}

TEST(StatsHistory, since_the_last_t_as_it_was_written_gives_nothing_twice) {
  StatsHistory history({.model = "demo"});
  history.add(reading_at(1));
  history.add(reading_at(2.00049));
  const double last = samples_of(history)[0]["t"].get<double>();
  EXPECT_TRUE(samples_of(history, last).empty());
}

TEST(StatsHistory, a_clock_that_was_set_back_starts_the_history_anew) {
  StatsHistory history({.model = "demo"});
  history.add(reading_at(1000));
  history.add(reading_at(1001));
  history.add(reading_at(500));
  history.add(reading_at(501));
  const json::Value samples = samples_of(history);
  ASSERT_EQ(samples.size(), 1);
  EXPECT_EQ(samples[0]["t"], 501);
}

TEST(Percentiles, are_linear_within_a_bucket) {
  const LatencyCounts before{kBounds, {0, 0, 0, 0, 0}};
  const LatencyCounts after{kBounds, {0, 10, 0, 0, 0}};
  const std::optional<LatencyPercentiles> found = percentiles_between(before, after);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->p50_ms, 15, 1e-9);
  EXPECT_NEAR(found->p90_ms, 19, 1e-9);
  EXPECT_NEAR(found->p99_ms, 19.9, 1e-9);
}

TEST(Percentiles, count_what_came_between_the_readings_only) {
  const LatencyCounts before{kBounds, {100, 0, 0, 0, 0}};
  const LatencyCounts after{kBounds, {100, 0, 0, 4, 0}};
  const std::optional<LatencyPercentiles> found = percentiles_between(before, after);
  ASSERT_TRUE(found);
  EXPECT_GT(found->p50_ms, 50);
}

TEST(Percentiles, none_when_nothing_came_and_the_last_bound_for_what_is_above) {
  const LatencyCounts empty{kBounds, {3, 0, 0, 0, 1}};
  EXPECT_FALSE(percentiles_between(empty, empty));
  EXPECT_FALSE(percentiles_between({}, {}));
  const std::optional<LatencyPercentiles> above =
      percentiles_between({}, {kBounds, {0, 0, 0, 0, 2}});
  ASSERT_TRUE(above);
  EXPECT_EQ(above->p50_ms, 100);
}

TEST(StatsTimer, reads_until_it_is_destroyed) {
  StatsHistory history({.model = "demo"});
  std::atomic<int> num_reads = 0;
  {
    StatsTimer timer(
        history, [&] { return reading_at(++num_reads); }, std::chrono::milliseconds(1));
    while (num_reads < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const int reads_at_end = num_reads;
  EXPECT_EQ(samples_of(history).size(), static_cast<size_t>(reads_at_end - 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(num_reads, reads_at_end);
}

}  // namespace
}  // namespace fathom::server
