#include "page/stats_history.h"
#include "base/json.h"

#include <gtest/gtest.h>

namespace fathom::page {
namespace {

const std::vector<double> kBounds = {0.01, 0.02, 0.05, 0.1};

StatsReading reading_at(double unix_seconds) {
  StatsReading reading;
  reading.unix_seconds = unix_seconds;
  reading.engine.num_blocks = 100;
  reading.engine.num_free_blocks = 100;
  reading.first_token_seconds = {kBounds, {0, 0, 0, 0, 0}};
  reading.inter_token_seconds = {kBounds, {0, 0, 0, 0, 0}};
  StepSnapshots& steps = reading.steps;
  for (metrics::HistogramSnapshot* part :
       {&steps.step, &steps.forward, &steps.sampling, &steps.mask_wait, &steps.plan, &steps.commit,
        &steps.hand_over})
    *part = {kBounds, {0, 0, 0, 0, 0}};
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
  next.engine.num_cached_blocks = 30;
  next.engine.num_fenced_blocks = 5;  // wait for a step to end; no sequence holds them
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

TEST(StatsHistory, drafts_are_told_only_where_there_are_any) {
  StatsHistory history({.model = "demo", .window_samples = 2});
  history.add(reading_at(1));
  history.add(reading_at(2));
  EXPECT_FALSE(samples_of(history)[0].contains("accept_length"));
  EXPECT_EQ(history.to_json(3, 0)["current"]["max_drafts"], 0);

  StatsReading reading = reading_at(3);
  reading.engine.speculation = {.max_drafts = 3, .num_drafts = 3};
  history.add(reading);
  reading.unix_seconds = 5;
  reading.engine.speculation.num_drafts = 1;
  reading.engine.speculation.num_verify_slices = 20;
  reading.engine.speculation.num_drafts_verified = 60;
  reading.engine.speculation.num_drafts_accepted = 30;
  history.add(reading);
  const json::Value samples = samples_of(history);
  EXPECT_TRUE(samples[1]["accept_length"].is_null());
  EXPECT_EQ(samples[2]["accept_length"], 2.5);
  EXPECT_TRUE(samples[1]["accept_rate"].is_null());
  EXPECT_EQ(samples[2]["accept_rate"], 0.5);
  EXPECT_EQ(samples[2]["drafted_tokens_per_s"], 30);
  EXPECT_EQ(samples[2]["accepted_tokens_per_s"], 15);
  EXPECT_EQ(samples[2]["num_drafts"], 1);
  EXPECT_EQ(history.to_json(6, 0)["current"]["max_drafts"], 3);
}

TEST(StatsHistory, times_of_steps_are_told_only_where_they_are_bounded) {
  StatsHistory history({.model = "demo"});
  history.add(reading_at(1));
  history.add(reading_at(2));
  EXPECT_FALSE(samples_of(history)[0].contains("step_ms"));
  EXPECT_EQ(history.to_json(3, 0)["current"]["max_step_ms"], 0);

  StatsReading reading = reading_at(3);
  reading.engine.step_time = {.bound_seconds = 0.05};
  history.add(reading);
  reading.unix_seconds = 4;
  reading.engine.step_time.longest_seconds = 0.0425;
  reading.engine.step_time.predicted_seconds = 0.04;
  history.add(reading);
  const json::Value samples = samples_of(history);
  EXPECT_EQ(samples[1]["step_ms"]["bound"], 50);
  EXPECT_TRUE(samples[1]["step_ms"]["longest"].is_null()) << "nobody decoded";
  EXPECT_EQ(samples[2]["step_ms"]["longest"], 42.5);
  EXPECT_EQ(samples[2]["step_ms"]["predicted"], 40);
  EXPECT_EQ(history.to_json(5, 0)["current"]["max_step_ms"], 50);
}

TEST(StatsHistory, parts_of_steps_are_means_over_the_window_and_null_where_nothing_was_measured) {
  StatsHistory history({.model = "demo", .window_samples = 2});
  history.add(reading_at(1));
  StatsReading reading = reading_at(2);
  reading.steps.step = {kBounds, {2, 0, 2, 0, 0}, 0.08};
  reading.steps.mask_wait = {kBounds, {4, 0, 0, 0, 0}, 0};
  reading.steps.plan = {kBounds, {4, 0, 0, 0, 0}, 0.0005};
  history.add(reading);
  for (int second = 3; second <= 4; ++second) {
    reading.unix_seconds = second;
    history.add(reading);
  }
  const json::Value samples = samples_of(history);
  const json::Value& parts = samples[0]["step_parts_ms"];
  EXPECT_EQ(parts["step"], 20);
  EXPECT_EQ(parts["mask_wait"], 0);
  EXPECT_EQ(parts["plan"], 0.125);
  for (const char* name : {"forward", "sampling", "commit", "hand_over"})
    EXPECT_TRUE(parts[name].is_null()) << name;
  EXPECT_EQ(samples[1]["step_parts_ms"]["step"], 20) << "the steps are within the window";
  EXPECT_TRUE(samples[2]["step_parts_ms"]["step"].is_null()) << "they left it";
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

TEST(StatsHistory, percentiles_are_of_what_came_within_the_window) {
  StatsHistory history({.model = "demo", .window_samples = 2});
  StatsReading reading = reading_at(1);
  reading.first_token_seconds.counts = {100, 0, 0, 0, 0};  // before the window: not counted
  history.add(reading);
  reading.unix_seconds = 2;
  reading.first_token_seconds.counts = {100, 10, 0, 0, 0};
  history.add(reading);
  const json::Value samples = samples_of(history);
  ASSERT_EQ(samples.size(), 1);
  EXPECT_NEAR(samples[0]["ttft_ms"]["p50"].get<double>(), 15, 0.01);
  EXPECT_NEAR(samples[0]["ttft_ms"]["p90"].get<double>(), 19, 0.01);
  EXPECT_NEAR(samples[0]["ttft_ms"]["p99"].get<double>(), 19.9, 0.01);
  EXPECT_TRUE(samples[0]["itl_ms"].is_null()) << "nothing came";
}

}  // namespace
}  // namespace fathom::page
