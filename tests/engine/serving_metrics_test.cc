// What the serving engine tells of itself: watchdog, metrics, traces.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/failpoint.h"
#include "base/trace.h"
#include "engine/serving_engine.h"
#include "tests/engine/serving_scenario.h"
#include "tests/sanitized.h"

namespace fathom::engine {
namespace {

using testing::Answer;
using testing::BlockingSink;
using testing::chain_of_three;
using testing::CollectingSink;
using testing::endless_request;
using testing::eventually;
using testing::expect_right_tokens;
using ::testing::HasSubstr;
using testing::make_request;
using testing::ManualClock;
using testing::roomy;

TEST(ServingEngine, TellsHowLongNothingMovedWhileThereIsWorkOnly) {
  ManualClock clock;
  runner::SimRunner runner(roomy());
  BlockingSink sink;
  ServingEngine engine(runner, {.step = {.clock = &clock}}, sink);
  clock.advance(std::chrono::hours(24));
  EXPECT_EQ(engine.snapshot().seconds_since_progress, 0) << "idle";
  Result<core::RequestId> id = core::RequestId{0};
  {
    const std::lock_guard lock(sink.gate_);
    id = engine.submit(endless_request(), 0);
    ASSERT_TRUE(id && sink.wait_for_tokens(*id, 1));
    clock.advance(std::chrono::seconds(30));
    EXPECT_EQ(engine.snapshot().seconds_since_progress, 30);
    EXPECT_TRUE(engine.snapshot().has_work);
  }
  EXPECT_TRUE(eventually([&] { return engine.snapshot().seconds_since_progress == 0; }));
  engine.cancel(*id);
  ASSERT_TRUE(sink.wait_for_end(*id));
  clock.advance(std::chrono::hours(1));
  EXPECT_EQ(engine.snapshot().seconds_since_progress, 0);
}

TEST(ServingEngine, ASlowStepShowsInTheWatchdogsDataAndHarmsNothing) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  arm_failpoint("serving_engine.slow_step", 1);
  core::Request request = endless_request();
  const Result<core::RequestId> id = engine.submit(request, 0);
  ASSERT_TRUE(id);
  // Step after step is slow until this thread comes to look during one.
  EXPECT_TRUE(eventually([&] {
    arm_failpoint("serving_engine.slow_step", 1);
    return engine.snapshot().seconds_since_progress > 0.05;
  }));
  disarm_failpoints();
  ASSERT_TRUE(sink.wait_for_tokens(*id, 10));
  engine.cancel(*id);
  ASSERT_TRUE(sink.wait_for_end(*id));
  const Answer answer = sink.answer(*id);
  request.sampling.max_new_tokens = static_cast<int>(answer.tokens.size());
  expect_right_tokens(request, answer, 1000);
}

TEST(ServingEngine, CountsAGapForEveryTokenOfAStepThatYieldsSeveral) {
  runner::SimRunner runner({.drafter = chain_of_three(1)});
  CollectingSink sink;
  ServingEngine engine(runner, {.step = {.speculation = {.enabled = true}}}, sink);
  ASSERT_TRUE(engine.submit(make_request(10, 41, 3), 0));
  ASSERT_TRUE(sink.wait_for_ends(1));
  // The prefill's token and ten times four: each of these took a quarter of its step.
  EXPECT_EQ(engine.metrics().requests.inter_token_latency_seconds.snapshot().num_observations(),
            40u);
}

TEST(ServingEngine, ExportsWhatItCountedUnderAllNames) {
  metrics::Registry registry(metrics::Labels{{"model_name", "demo"}});
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {.registry = &registry}, sink);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine.submit(make_request(100, 20, 100 * i), 0));
  ASSERT_TRUE(sink.wait_for_ends(5));
  engine.cancel(*engine.submit(endless_request(), 0));
  ASSERT_TRUE(sink.wait_for_ends(6));
  const std::string text = registry.expose();
  const auto expect_line = [&](const std::string& name, const std::string& rest) {
    EXPECT_THAT(text, HasSubstr("\n" + name + "{model_name=\"demo\"" + rest));
  };
  expect_line("fathom:requests_received_total", "} 6\n");
  expect_line("sglang:num_requests_total", "} 6\n");
  expect_line("vllm:request_success_total", ",finished_reason=\"length\"} 5\n");
  expect_line("fathom:requests_total", ",finish_reason=\"abort\"} 1\n");
  expect_line("sglang:num_aborted_requests_total", "} 1\n");
  expect_line("vllm:time_to_first_token_seconds_count", "} ");
  expect_line("sglang:num_running_reqs", "} 0\n");
  expect_line("sglang:max_total_num_tokens", "} 524288\n");
  expect_line("sglang:page_size", "} 64\n");
  expect_line("fathom:invariant_violations_total", ",invariant=\"integrity\"} 0\n");
  EXPECT_THAT(text, ::testing::Not(HasSubstr("startup"))) << "nobody measured it";
  engine.metrics().add_startup({.total_seconds = 3, .load_weights_seconds = 2});
  EXPECT_THAT(registry.expose(),
              HasSubstr("sglang:engine_load_weights_time{model_name=\"demo\"} 2\n"));

  const EngineSnapshot now = engine.snapshot();
  const metrics::HistogramSnapshot gaps =
      engine.metrics().requests.inter_token_latency_seconds.snapshot();
  const metrics::HistogramSnapshot firsts =
      engine.metrics().requests.time_to_first_token_seconds.snapshot();
  EXPECT_EQ(firsts.num_observations() + gaps.num_observations(),
            static_cast<uint64_t>(now.num_output_tokens));
  EXPECT_EQ(engine.metrics().requests.e2e_latency_seconds.snapshot().num_observations(), 6u);
  EXPECT_GT(engine.metrics().steps.plan_seconds.snapshot().num_observations(), 20u);
  // Known once the steps that release the last slots are done.
  EXPECT_TRUE(eventually([&] { return engine.snapshot().generation_tokens_per_second > 0; }));
}

TEST(ServingEngine, CanBeScrapedWhileItComesGoesAndWorks) {
  metrics::Registry registry;
  std::atomic<bool> done = false;
  std::thread scraper([&] {
    while (!done) registry.expose();
  });
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  {
    ServingEngine engine(runner, {.registry = &registry}, sink);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(engine.submit(make_request(30, 50, i), 0));
    ASSERT_TRUE(sink.wait_for_ends(20));
  }
  done = true;
  scraper.join();
  EXPECT_THAT(registry.expose(), HasSubstr("fathom:requests_finished_total 20\n"));
}

// Says what a model's would.
class MeasuringRunner : public runner::SimRunner {
 public:
  using SimRunner::SimRunner;
  core::StepResult wait() override {
    core::StepResult result = SimRunner::wait();
    // Powers of two, so that sums are exact. The first step computes nothing.
    const bool computes = result.step_id > 0;
    result.wall_seconds = 0.5;
    result.forward_seconds = computes ? 0.25 : 0;
    result.sampling_seconds = computes ? 0.125 : 0;
    result.mask_wait_seconds = computes ? 0.0625 : 0;
    return result;
  }
};

TEST(ServingEngine, ObservesThePartsOfEveryStepThatWereMeasured) {
  MeasuringRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  const Result<core::RequestId> id = engine.submit(make_request(10, 5), 0);
  ASSERT_TRUE(id);
  ASSERT_TRUE(sink.wait_for_end(*id));
  const StepHistograms& steps = engine.metrics().steps;
  const auto has = [](const metrics::Histogram& histogram, uint64_t count, double sum) {
    const metrics::HistogramSnapshot now = histogram.snapshot();
    return now.num_observations() == count && now.sum == sum;
  };
  // Steps behind the last token are committed when everybody has had it.
  EXPECT_TRUE(eventually([&] {
    const uint64_t count = steps.step_seconds.snapshot().num_observations();
    const auto computing = static_cast<double>(count) - 1;
    return count >= 5 && has(steps.step_seconds, count, 0.5 * (computing + 1)) &&
           has(steps.forward_seconds, count, 0.25 * computing) &&
           has(steps.sampling_seconds, count, 0.125 * computing) &&
           has(steps.mask_wait_seconds, count, 0.0625 * computing);
  }));
}

TEST(ServingEngine, CountsPromptTokensFoundInTheCache) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  for (core::RequestId id = 1; id <= 2; ++id) {
    ASSERT_TRUE(engine.submit(make_request(200, 5), 0));
    ASSERT_TRUE(sink.wait_for_end(id));
  }
  const EngineSnapshot now = engine.snapshot();
  EXPECT_EQ(now.num_prompt_tokens, 400);
  EXPECT_EQ(now.num_cached_tokens, 192) << "three whole blocks";
  EXPECT_EQ(now.num_prefill_tokens, 208);
  EXPECT_TRUE(eventually([&] { return engine.snapshot().num_cached_blocks == 3; }));
  EXPECT_TRUE(engine.flush_cache());
  EXPECT_TRUE(eventually([&] { return engine.snapshot().num_cached_blocks == 0; }));
}

TEST(ServingEngine, RecordsItsStepsInATrace) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  ASSERT_TRUE(trace::start({}));
  const Result<core::RequestId> id = engine.submit(make_request(10, 5), 0);
  ASSERT_TRUE(id && sink.wait_for_end(*id));
  const std::string json = trace::stop();
  EXPECT_THAT(json, HasSubstr(R"("args":{"name":"engine"})"));
  for (const char* span : {R"("cat":"sched","name":"plan")", R"("cat":"runner","name":"submit")",
                           R"("cat":"runner","name":"wait")", R"("cat":"engine","name":"commit")",
                           R"("cat":"engine","name":"hand over")"})
    EXPECT_THAT(json, HasSubstr(span));
}

}  // namespace
}  // namespace fathom::engine
