// The bound on the time of steps, over the simulated runner whose steps take what its own machine takes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "base/startup_error.h"
#include "engine/serving_engine.h"
#include "engine/step_loop.h"
#include "engine/step_time_window.h"
#include "tests/engine/serving_scenario.h"
#include "tests/engine/sim_scenario.h"

namespace fathom::engine {
namespace {

using testing::Recorder;

constexpr int kTimedStreams = 8, kTimedStreamTokens = 4000;

struct TimedTraffic {
  runner::SimCostConfig cost{};
  double max_step_seconds = 0;
  int num_streams = kTimedStreams;
  std::vector<int> prompts{6144};  // they come when the streams run
  int chunked_prefill_size = 2048;
  bool overlap = true;
};

struct TimedRun {
  double prompts_seconds = 0;  // from when they came to the first token of the last one
  double longest_gap = 0;      // of a step in which streams decoded, while the prompts ran
  double seconds_over = 0;
  int num_gaps = 0, num_over_twice = 0;
  StepTimeStats times{};
  int64_t num_prefill_tokens = 0;
  std::vector<core::RequestId> order;  // in which the prompts had their first token
};

core::Request timed_request(core::RequestId id, int num_tokens, int max_new_tokens) {
  core::Request request{.id = id};
  for (int i = 0; i < num_tokens; ++i)
    request.prompt.push_back(static_cast<int32_t>((id * 131 + i * 7) % 1000));
  request.sampling.temperature = 0;
  request.sampling.max_new_tokens = max_new_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

void start_timed_streams(const TimedTraffic& scenario, StepLoop& loop, Recorder& recorder) {
  for (int i = 0; i < scenario.num_streams; ++i)
    ASSERT_TRUE(loop.add(timed_request(i, 48, kTimedStreamTokens)));
  for (int i = 0; i < 40 && scenario.num_streams > 0; ++i) recorder.step();
}

TimedRun run_timed(const TimedTraffic& scenario) {
  runner::SimRunner runner({.num_blocks = 2048,
                            .max_slots = 16,
                            .max_batch_tokens = scenario.chunked_prefill_size,
                            .cost = scenario.cost});
  StepLoop loop(runner, {.chunked_prefill_size = scenario.chunked_prefill_size,
                         .max_step_seconds = scenario.max_step_seconds,
                         .radix_cache = false,
                         .overlap = scenario.overlap});
  Recorder recorder(loop);
  start_timed_streams(scenario, loop, recorder);
  const StepLoopStats before = loop.stats();
  StepLoopStats last = before;
  TimedRun outcome;
  core::RequestId next_id = 100;
  for (const int num_tokens : scenario.prompts)
    EXPECT_TRUE(loop.add(timed_request(next_id++, num_tokens, 1)));
  while (outcome.order.size() < scenario.prompts.size() && last.num_steps < 200'000) {
    recorder.step();
    const StepLoopStats now = loop.stats();
    const double seconds = now.wall_seconds - last.wall_seconds;
    const int64_t num_tokens = now.num_output_tokens - last.num_output_tokens;
    if (num_tokens >= kTimedStreams && scenario.num_streams > 0) {
      ++outcome.num_gaps;
      outcome.longest_gap = std::max(outcome.longest_gap, seconds);
      outcome.num_over_twice += seconds > 2 * scenario.max_step_seconds ? 1 : 0;
    }
    last = now;
    for (core::RequestId id = 100; id < next_id; ++id)
      if (recorder.finished.count(id) > 0 &&
          std::find(outcome.order.begin(), outcome.order.end(), id) == outcome.order.end())
        outcome.order.push_back(id);
  }
  EXPECT_EQ(outcome.order.size(), scenario.prompts.size()) << "prompts starve";
  outcome.prompts_seconds = last.wall_seconds - before.wall_seconds;
  outcome.times = last.step_time;
  outcome.num_prefill_tokens = last.num_prefill_tokens;
  EXPECT_EQ(loop.check_integrity(), "");
  return outcome;
}

// As two cores of a CPU: attention over a long prompt is what a step costs.
runner::SimCostConfig slow_machine() {
  return {.step_us = 300, .prompt_step_us = 400, .noise = 0.15};
}

// As a GPU: steps have a floor, and tokens cost little beside it.
runner::SimCostConfig fast_machine() {
  return {.step_us = 6000,
          .prompt_step_us = 2000,
          .step_start_tokens = 256,
          .linear_rate = 800,
          .absorbed_rate = 9000,
          .expanded_rate = 12'000,
          .decode_rate = 2000,
          .noise = 0.1};
}

// As eight GPUs with DeepSeek-V3: reading the weights takes as long as computing hundreds of tokens.
runner::SimCostConfig large_model() {
  return {.step_us = 24'000,
          .prompt_step_us = 17'000,
          .step_start_tokens = 256,
          .linear_rate = 130,
          .absorbed_rate = 9000,
          .expanded_rate = 12'000,
          .decode_rate = 2000,
          .noise = 0.05};
}

TEST(StepTime, without_a_bound_a_long_prompt_makes_streams_wait_for_seconds) {
  const TimedRun outcome = run_timed({.cost = slow_machine()});
  EXPECT_GT(outcome.longest_gap, 1);
  EXPECT_EQ(outcome.times.bound_seconds, 0);
  EXPECT_EQ(outcome.times.num_cut, 0);
}

TEST(StepTime, a_bound_holds_within_a_factor_of_two_on_slow_and_fast_machines) {
  for (const bool overlap : {false, true})
    for (const double bound : {0.06, 0.1})
      for (const runner::SimCostConfig& cost : {slow_machine(), fast_machine()}) {
        const TimedRun outcome =
            run_timed({.cost = cost, .max_step_seconds = bound, .overlap = overlap});
        EXPECT_LE(outcome.longest_gap, 2 * bound);
        EXPECT_GT(outcome.times.num_cut, 0);
        EXPECT_LT(outcome.times.error, 0.3);
      }
}

TEST(StepTime, a_bound_holds_on_machines_of_many_kinds) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    uint64_t counter = 0;
    const auto draw = [&](double min, double max) {
      return min * std::pow(max / min, uniform(philox(seed, 7, counter++)[0]));
    };
    const runner::SimCostConfig cost{.step_us = draw(100, 5000),
                                     .prompt_step_us = draw(50, 5000),
                                     .linear_rate = draw(5, 500),
                                     .absorbed_rate = draw(20, 2000),
                                     .expanded_rate = draw(20, 2000),
                                     .decode_rate = draw(20, 500),
                                     .noise = draw(0.02, 0.2),
                                     .seed = seed};
    SCOPED_TRACE("machine " + std::to_string(seed));
    const TimedRun outcome = run_timed(
        {.cost = cost, .max_step_seconds = 0.08, .prompts = {6000}, .chunked_prefill_size = 4096});
    EXPECT_LE(outcome.longest_gap, 2 * 0.08);
  }
}

TEST(StepTime, the_bound_costs_a_prompt_at_most_a_fifth_of_its_throughput_where_tokens_dominate) {
  const double bound = 0.07;
  const std::vector<int> prompts(4, 16'384);
  const TimedRun without =
      run_timed({.cost = fast_machine(), .prompts = prompts, .chunked_prefill_size = 8192});
  const TimedRun with = run_timed({.cost = fast_machine(),
                                   .max_step_seconds = bound,
                                   .prompts = prompts,
                                   .chunked_prefill_size = 8192});
  EXPECT_GT(without.longest_gap, 2 * bound) << "the bound has nothing to do";
  EXPECT_LE(with.longest_gap, 2 * bound);
  EXPECT_LE(with.prompts_seconds, 1.25 * without.prompts_seconds);
}

// What a step costs at the least leaves 20 ms of the bound for prompts: some 600 tokens.
TEST(StepTime, prompts_get_what_there_is_time_for_beside_large_weights) {
  for (const auto& [num_prompts, least_tokens] : {std::pair{8, 200.0}, {64, 400.0}}) {
    const TimedRun outcome =
        run_timed({.cost = large_model(),
                   .max_step_seconds = 0.05,
                   .prompts = std::vector<int>(static_cast<size_t>(num_prompts), 2048)});
    EXPECT_LE(outcome.longest_gap, 2 * 0.05);
    EXPECT_GE(num_prompts * 2048.0 / outcome.num_gaps, least_tokens) << num_prompts << " prompts";
  }
}

// Where decodes take 40 of 50 ms prompts take as long: some 1,200 tokens.
TEST(StepTime, prompts_get_as_long_as_decodes_that_nearly_fill_the_bound) {
  runner::SimCostConfig cost = large_model();
  cost.step_us = 40'000;
  cost.prompt_step_us = 1000;
  const TimedRun outcome =
      run_timed({.cost = cost, .max_step_seconds = 0.05, .prompts = std::vector<int>(64, 2048)});
  EXPECT_LE(outcome.longest_gap, 2.5 * 0.04);
  EXPECT_GE(64 * 2048.0 / outcome.num_gaps, 900);
}

TEST(StepTime, without_streams_the_bound_changes_nothing) {
  const TimedRun without = run_timed({.cost = slow_machine(), .num_streams = 0});
  const TimedRun with =
      run_timed({.cost = slow_machine(), .max_step_seconds = 0.05, .num_streams = 0});
  EXPECT_EQ(with.prompts_seconds, without.prompts_seconds);
  EXPECT_EQ(with.times.num_cut, 0);
}

TEST(StepTime, a_step_that_was_held_up_does_not_stop_prompts) {
  runner::SimCostConfig cost = slow_machine();
  cost.hiccup_one_in = 25;
  const TimedRun calm = run_timed({.cost = slow_machine(), .max_step_seconds = 0.05});
  const TimedRun outcome = run_timed({.cost = cost, .max_step_seconds = 0.05});
  EXPECT_LE(outcome.num_over_twice, outcome.num_gaps / 15);
  // One step in 25 takes ten times as long, so all together 1.36 times.
  EXPECT_LE(outcome.prompts_seconds, 2 * calm.prompts_seconds);
}

TEST(StepTime, follows_a_machine_that_others_begin_to_use) {
  runner::SimCostConfig cost = slow_machine();
  cost.slow_from_step = 100;
  cost.slowdown = 3;
  const TimedRun outcome = run_timed({.cost = cost, .max_step_seconds = 0.1});
  // Until the factor has followed steps take three times what was planned.
  EXPECT_LE(outcome.num_over_twice, 6);
  EXPECT_LE(outcome.longest_gap, 0.4);
}

TEST(StepTime, prompts_advance_where_decodes_alone_exceed_the_bound) {
  const TimedRun outcome =
      run_timed({.cost = slow_machine(), .max_step_seconds = 0.001, .prompts = {1000}});
  const double decodes = outcome.longest_gap / 3;
  EXPECT_GT(outcome.num_gaps, 10);
  EXPECT_LT(decodes, 0.01);
}

TEST(StepTime, prompts_that_come_together_end_in_order_and_short_ones_before_a_long_one) {
  const TimedRun outcome = run_timed(
      {.cost = slow_machine(), .max_step_seconds = 0.05, .prompts = {8192, 100, 100, 100, 4096}});
  ASSERT_EQ(outcome.order.size(), 5u);
  EXPECT_EQ(outcome.order[0], 101);
  EXPECT_EQ(outcome.order[1], 102);
  EXPECT_EQ(outcome.order[2], 103);
  EXPECT_EQ(outcome.order[3], 100);
  EXPECT_EQ(outcome.order[4], 104);
}

TEST(StepTime, tokens_are_those_of_any_other_chunks) {
  for (const double bound : {0.0, 0.002, 0.03}) {
    runner::SimRunner runner({.num_blocks = 256, .cost = slow_machine()});
    StepLoop loop(runner, {.max_step_seconds = bound});
    Recorder recorder(loop);
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(loop.add(timed_request(i, 40 + 300 * i, 60)));
    recorder.run();
    for (int i = 0; i < 6; ++i) {
      const core::Request request = timed_request(i, 40 + 300 * i, 60);
      const core::RequestOutput& got = recorder.finished.at(i);
      EXPECT_EQ(testing::ids_of(got.tokens),
                testing::ids_of(testing::expected_output(request, got.seed, {}, 1000).tokens));
    }
  }
}

TEST(StepTime, the_engine_tells_bound_prediction_and_what_became_of_it) {
  metrics::Registry registry;
  runner::SimRunner runner({.num_blocks = 256, .cost = slow_machine()});
  testing::CollectingSink sink;
  ServingEngine engine(runner, {.step = {.max_step_seconds = 0.03}, .registry = &registry}, sink);
  ASSERT_TRUE(engine.submit(timed_request(0, 48, 2000), 0));
  ASSERT_TRUE(sink.wait_for_tokens(1, 20));
  ASSERT_TRUE(engine.submit(timed_request(0, 2000, 1), 0));
  ASSERT_TRUE(sink.wait_for_end(2));
  const StepTimeSnapshot now = engine.snapshot().step_time;
  EXPECT_EQ(now.bound_seconds, 0.03);
  EXPECT_GT(now.num_steps, 20);
  EXPECT_GT(now.num_cut, 0);
  EXPECT_GT(now.longest_seconds, 0.015);
  EXPECT_GT(now.predicted_seconds, now.longest_seconds / 2);
  EXPECT_LT(now.predicted_seconds, now.longest_seconds * 2);
  EXPECT_GT(now.error, 0);
  const std::string text = registry.expose();
  EXPECT_THAT(text, ::testing::HasSubstr("fathom:max_step_seconds 0.03\n"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("fathom:cut_steps_total 0\n")));
  engine.cancel_all();
  ASSERT_TRUE(sink.wait_for_end(1));
}

TEST(StepTimeWindow, tells_the_longest_step_of_this_second_and_the_one_before) {
  StepTimeWindow window;
  const auto at = [](double seconds) {
    return StepTimeWindow::TimePoint(
        std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)));
  };
  window.add(at(10), {.seconds = 0.2, .predicted_seconds = 0.1});
  window.add(at(10.5), {.seconds = 0.1});
  EXPECT_EQ(window.longest().seconds, 0.2);
  window.add(at(11.2), {.seconds = 0.05});
  EXPECT_EQ(window.longest().predicted_seconds, 0.1);
  window.add(at(12.3), {.seconds = 0.04});
  EXPECT_EQ(window.longest().seconds, 0.05);
  window.add(at(20), {.seconds = 0.01});
  EXPECT_EQ(window.longest().seconds, 0.01);
  window.clear();
  EXPECT_EQ(window.longest().seconds, 0);
}

TEST(StepTime, a_bound_below_zero_is_refused) {
  runner::SimRunner runner({});
  EXPECT_THROW(StepLoop(runner, {.max_step_seconds = -1}), StartupError);
}

}  // namespace
}  // namespace fathom::engine
