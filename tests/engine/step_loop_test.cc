#include "engine/step_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/failpoint.h"
#include "base/startup_error.h"
#include "tests/engine/sim_scenario.h"
#include "tests/engine/toy_constraint.h"

namespace fathom::engine {
namespace {

using testing::expected_output;
using ::testing::HasSubstr;
using testing::ids_of;
using testing::Recorder;

constexpr int kLoopVocabSize = 1000;

core::SamplingParams greedy_request(int max_new_tokens) {
  core::SamplingParams params;
  params.temperature = 0;
  params.max_new_tokens = max_new_tokens;
  return params;
}

std::vector<int32_t> prompt_of(int num_tokens, int32_t first = 10) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < num_tokens; ++i) prompt.push_back((first + 7 * i) % kLoopVocabSize);
  return prompt;
}

class SimEngine : public ::testing::Test {
 protected:
  SimEngine() { disarm_failpoints(); }
  ~SimEngine() override { disarm_failpoints(); }

  // Runs the requests and compares each with the oracle.
  void expect_all_as_alone(const runner::SimConfig& sim, const StepLoopConfig& config,
                           const std::vector<core::Request>& requests) {
    runner::SimRunner runner(sim);
    StepLoop loop(runner, config);
    Recorder recorder(loop);
    for (const core::Request& request : requests) ASSERT_TRUE(loop.add(request));
    while (recorder.step()) ASSERT_EQ(loop.check_integrity(), "");
    for (const core::Request& request : requests) {
      const core::RequestOutput& got = recorder.finished.at(request.id);
      const core::RequestOutput want =
          expected_output(request, got.seed, config.eos_token_ids, sim.vocab_size);
      EXPECT_EQ(ids_of(got.tokens), ids_of(want.tokens)) << "request " << request.id;
      EXPECT_EQ(got.finish_reason, want.finish_reason) << "request " << request.id;
    }
    testing::expect_everything_returned(loop, runner.info());
    stats_ = loop.stats();
  }

  StepLoopStats stats_;
};

TEST_F(SimEngine, answers_the_same_for_every_chunk_size_and_block_boundary) {
  for (const int chunk : {1, 7, 63, 64, 65, 128, 1000})
    for (const bool overlap : {false, true}) {
      std::vector<core::Request> requests;
      for (const int length : {1, 63, 64, 65, 128, 200})
        requests.push_back(
            {.id = length, .prompt = prompt_of(length), .sampling = greedy_request(70)});
      expect_all_as_alone({.vocab_size = kLoopVocabSize, .num_blocks = 64, .block_tokens = 64},
                          {.chunked_prefill_size = chunk, .overlap = overlap}, requests);
    }
}

TEST_F(SimEngine, answers_the_same_from_a_pool_that_forces_retraction) {
  for (const bool overlap : {false, true}) {
    std::vector<core::Request> requests;
    for (int i = 0; i < 8; ++i)
      requests.push_back({.id = i, .prompt = prompt_of(5 + i, i), .sampling = greedy_request(30)});
    expect_all_as_alone({.vocab_size = kLoopVocabSize, .num_blocks = 12, .block_tokens = 4},
                        {.overlap = overlap}, requests);
    EXPECT_GT(stats_.num_retractions, 0) << "the pool was too large to test anything";
  }
}

TEST_F(SimEngine, runs_a_request_that_needs_the_whole_pool) {
  for (const bool overlap : {false, true})
    expect_all_as_alone({.vocab_size = kLoopVocabSize, .num_blocks = 3, .block_tokens = 4},
                        {.overlap = overlap},
                        {{.id = 1, .prompt = prompt_of(5), .sampling = greedy_request(7)},
                         {.id = 2, .prompt = prompt_of(5, 3), .sampling = greedy_request(7)}});
}

TEST_F(SimEngine, overlap_wastes_at_most_one_token_per_request) {
  std::vector<core::Request> requests;
  for (int i = 0; i < 20; ++i)
    requests.push_back({.id = i, .prompt = prompt_of(9, i), .sampling = greedy_request(200)});
  std::vector<int32_t> many_stops;
  for (int32_t token = 0; token < kLoopVocabSize; token += 10) many_stops.push_back(token);
  expect_all_as_alone({.vocab_size = kLoopVocabSize},
                      {.overlap = true, .eos_token_ids = many_stops}, requests);
  EXPECT_GT(stats_.num_wasted_tokens, 0);
  EXPECT_LE(stats_.num_wasted_tokens, 20);
  expect_all_as_alone({.vocab_size = kLoopVocabSize},
                      {.overlap = false, .eos_token_ids = many_stops}, requests);
  EXPECT_EQ(stats_.num_wasted_tokens, 0);
}

TEST_F(SimEngine, needs_one_step_per_token_and_one_for_the_release) {
  expect_all_as_alone({.vocab_size = kLoopVocabSize}, {.overlap = false},
                      {{.id = 1, .prompt = prompt_of(9), .sampling = greedy_request(10)}});
  EXPECT_EQ(stats_.num_steps, 11);
  EXPECT_EQ(stats_.num_prefill_tokens, 9);
  EXPECT_EQ(stats_.num_output_tokens, 10);
}

TEST_F(SimEngine, honours_stop_ids_min_new_tokens_and_ignore_eos) {
  const std::vector<int32_t> prompt = prompt_of(6);
  const int32_t first = runner::SimRunner::expected_next(prompt, {.vocab_size = kLoopVocabSize});
  core::SamplingParams stops = greedy_request(5);
  stops.stop_token_ids = {first};
  core::SamplingParams later = stops;
  later.min_new_tokens = 3;
  core::SamplingParams ignoring = greedy_request(5);
  ignoring.ignore_eos = true;

  runner::SimRunner runner({.vocab_size = kLoopVocabSize});
  StepLoop loop(runner, {.eos_token_ids = {first}});
  Recorder recorder(loop);
  ASSERT_TRUE(loop.add({.id = 1, .prompt = prompt, .sampling = stops}));
  ASSERT_TRUE(loop.add({.id = 2, .prompt = prompt, .sampling = later}));
  ASSERT_TRUE(loop.add({.id = 3, .prompt = prompt, .sampling = ignoring}));
  ASSERT_TRUE(loop.add({.id = 4, .prompt = prompt, .sampling = greedy_request(5)}));
  recorder.run();
  EXPECT_EQ(recorder.finished[1].finish_reason, core::FinishReason::kStop);
  EXPECT_EQ(recorder.finished[1].matched_stop_token, first);
  EXPECT_EQ(ids_of(recorder.finished[1].tokens), std::vector<int32_t>{first});
  EXPECT_GE(recorder.finished[2].tokens.size(), 3u);
  EXPECT_NE(recorder.finished[2].tokens[0].token, first);
  EXPECT_EQ(recorder.finished[3].tokens.size(), 5u);
  EXPECT_EQ(recorder.finished[3].tokens[0].token, first);
  EXPECT_EQ(recorder.finished[3].finish_reason, core::FinishReason::kLength);
  EXPECT_EQ(recorder.finished[4].finish_reason, core::FinishReason::kStop);
}

TEST_F(SimEngine, returns_prompt_logprobs_once_for_every_prompt_token_but_the_first) {
  core::SamplingParams params = greedy_request(40);
  params.return_prompt_logprobs = true;
  params.num_top_logprobs = 3;
  std::vector<std::vector<core::SampledToken>> seen;
  for (const int num_blocks : {64, 12})
    for (const int chunk : {3, 1000}) {
      runner::SimRunner runner(
          {.vocab_size = kLoopVocabSize, .num_blocks = num_blocks, .block_tokens = 4});
      StepLoop loop(runner, {.chunked_prefill_size = chunk});
      Recorder recorder(loop);
      for (int i = 0; i < 4; ++i)
        ASSERT_TRUE(loop.add({.id = i, .prompt = prompt_of(8, i), .sampling = params}));
      recorder.run();
      EXPECT_EQ(loop.stats().num_retractions > 0, num_blocks == 12);
      for (int i = 0; i < 4; ++i) {
        const auto& got = recorder.finished[i].prompt_logprobs;
        const std::vector<int32_t> prompt = prompt_of(8, i);
        EXPECT_EQ(ids_of(got), std::vector<int32_t>(prompt.begin() + 1, prompt.end()));
        EXPECT_EQ(got.at(0).top_logprobs.size(), 3u);
      }
      seen.push_back(recorder.finished[3].prompt_logprobs);
    }
  for (size_t i = 0; i < seen[0].size(); ++i)
    for (const auto& other : seen) EXPECT_EQ(other[i].logprob, seen[0][i].logprob);
}

TEST_F(SimEngine, gives_prompt_logprobs_out_with_the_first_token_and_once) {
  core::SamplingParams params = greedy_request(20);
  params.return_prompt_logprobs = true;
  runner::SimRunner runner({.vocab_size = kLoopVocabSize, .num_blocks = 8, .block_tokens = 4});
  StepLoop loop(runner, {.chunked_prefill_size = 4});
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(loop.add({.id = i, .prompt = prompt_of(8, i), .sampling = params}));
  int num_given[3] = {};
  for (bool busy = true; busy;) {
    StepUpdates updates;
    busy = loop.step(updates);
    for (const RequestUpdate& update : updates.requests) {
      if (update.prompt_logprobs == nullptr) continue;
      ++num_given[update.id];
      EXPECT_GE(update.first_token_seconds, 0);
      EXPECT_EQ(update.prompt_logprobs->size(), 7u);
    }
  }
  EXPECT_GT(loop.stats().num_retractions, 0);
  for (const int num : num_given) EXPECT_EQ(num, 1);
}

TEST_F(SimEngine, scores_a_prompt_without_generating) {
  core::SamplingParams params = greedy_request(0);
  params.return_prompt_logprobs = true;
  runner::SimRunner runner({.vocab_size = kLoopVocabSize});
  StepLoop loop(runner, {.chunked_prefill_size = 4});
  Recorder recorder(loop);
  ASSERT_TRUE(loop.add({.id = 1, .prompt = prompt_of(10), .sampling = params}));
  recorder.run();
  EXPECT_TRUE(recorder.finished[1].tokens.empty());
  EXPECT_EQ(recorder.finished[1].prompt_logprobs.size(), 9u);
  EXPECT_EQ(recorder.finished[1].finish_reason, core::FinishReason::kLength);
}

TEST_F(SimEngine, fails_the_request_whose_step_failed_and_no_other) {
  runner::SimRunner runner({.vocab_size = kLoopVocabSize});
  StepLoop loop(runner, {});
  Recorder recorder(loop);
  std::vector<core::Request> requests;
  for (int i = 0; i < 3; ++i)
    requests.push_back({.id = i, .prompt = prompt_of(8, i), .sampling = greedy_request(10)});
  for (const core::Request& request : requests) ASSERT_TRUE(loop.add(request));
  arm_failpoint("sim_runner.slice", 5);  // three slices per step: request 1 in the second
  recorder.run();
  EXPECT_EQ(recorder.finished[1].finish_reason, core::FinishReason::kFailed);
  EXPECT_THAT(recorder.finished[1].error, HasSubstr("not finite"));
  EXPECT_EQ(recorder.finished[1].tokens.size(), 1u);
  for (const int i : {0, 2})
    EXPECT_EQ(
        ids_of(recorder.finished[i].tokens),
        ids_of(expected_output(requests[static_cast<size_t>(i)], 0, {}, kLoopVocabSize).tokens));
  testing::expect_everything_returned(loop, runner.info());
}

TEST_F(SimEngine, forgets_what_is_cached_when_a_slice_has_failed_by_its_logits) {
  runner::SimRunner runner({.vocab_size = kLoopVocabSize, .block_tokens = 4});
  StepLoop loop(runner, {});
  Recorder recorder(loop);
  core::Request request{.id = 1, .prompt = prompt_of(17), .sampling = greedy_request(2)};
  ASSERT_TRUE(loop.add(request));
  recorder.run();
  ASSERT_GT(loop.scheduler().kv_usage().num_cached, 0);
  arm_failpoint("sim_runner.slice", 1);
  ASSERT_TRUE(loop.add({.id = 2, .prompt = prompt_of(9, 3), .sampling = greedy_request(2)}));
  recorder.run();
  EXPECT_EQ(recorder.finished[2].finish_reason, core::FinishReason::kFailed);
  EXPECT_EQ(loop.scheduler().kv_usage().num_cached, 0);
}

TEST_F(SimEngine, keeps_nothing_of_requests_that_end_in_a_pause) {
  runner::SimRunner runner({.vocab_size = kLoopVocabSize});
  StepLoop loop(runner, {});
  StepUpdates updates;
  loop.pause(sched::Scheduler::Pause::kKeepRunning);
  auto constraint =
      std::make_shared<testing::ToyConstraint>(testing::ToyConstraint::Rule{.vocab_size = 100});
  const std::weak_ptr<testing::ToyConstraint> left = constraint;
  ASSERT_TRUE(loop.add({.id = 1,
                        .prompt = prompt_of(8),
                        .sampling = greedy_request(10),
                        .constraint = std::move(constraint)}));
  loop.cancel(1);
  EXPECT_FALSE(left.expired());
  EXPECT_FALSE(loop.step(updates));
  EXPECT_EQ(updates.requests.size(), 1u);
  EXPECT_TRUE(left.expired());
}

TEST_F(SimEngine, cancels_waiting_and_running_requests_and_ignores_unknown_ids) {
  runner::SimRunner runner({.vocab_size = kLoopVocabSize, .max_slots = 1});
  StepLoop loop(runner, {});
  Recorder recorder(loop);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(loop.add({.id = i, .prompt = prompt_of(8, i), .sampling = greedy_request(10)}));
  for (int i = 0; i < 4; ++i) recorder.step();
  loop.cancel(0);
  loop.cancel(1);
  loop.cancel(77);
  loop.cancel(0);
  recorder.run();
  EXPECT_EQ(recorder.finished[0].finish_reason, core::FinishReason::kCancelled);
  EXPECT_EQ(recorder.finished[0].tokens.size(), 3u);
  EXPECT_EQ(recorder.finished[1].finish_reason, core::FinishReason::kCancelled);
  EXPECT_TRUE(recorder.finished[1].tokens.empty());
  EXPECT_EQ(recorder.finished[2].finish_reason, core::FinishReason::kLength);
  testing::expect_everything_returned(loop, runner.info());
}

TEST_F(SimEngine, cancelling_and_stopping_at_any_phase_frees_slot_and_blocks_within_two_steps) {
  for (const bool overlap : {false, true})
    for (const bool stop : {false, true})
      for (int num_steps = 0; num_steps < 9; ++num_steps) {
        runner::SimRunner runner({.vocab_size = kLoopVocabSize, .block_tokens = 4});
        StepLoop loop(runner,
                      {.chunked_prefill_size = 5, .radix_cache = false, .overlap = overlap});
        Recorder recorder(loop);
        // Alone, and with another request that goes on: the fence of its steps must not hold the blocks.
        ASSERT_TRUE(loop.add({.id = 0, .prompt = prompt_of(4), .sampling = greedy_request(100)}));
        ASSERT_TRUE(
            loop.add({.id = 1, .prompt = prompt_of(18, 3), .sampling = greedy_request(100)}));
        for (int i = 0; i < num_steps; ++i) recorder.step();
        if (stop) {
          loop.stop(1);
        } else {
          loop.cancel(1);
        }
        recorder.step();
        EXPECT_EQ(recorder.finished.count(1), 1u);
        recorder.step();
        EXPECT_EQ(loop.num_live(), 1);
        const sched::KvUsage usage = loop.scheduler().kv_usage();
        EXPECT_EQ(usage.num_fenced, 0) << "after " << num_steps << " steps";
        EXPECT_EQ(loop.scheduler().num_free_slots(), runner.info().max_slots - 1);
        EXPECT_EQ(recorder.finished[1].finish_reason,
                  stop ? core::FinishReason::kStop : core::FinishReason::kCancelled);
        EXPECT_EQ(recorder.finished[1].matched_stop_token, -1);
      }
}

TEST_F(SimEngine, scores_and_repeats_a_prompt_with_and_without_the_cache_to_the_same_tokens) {
  for (const int length : {15, 16, 17, 32, 33})
    for (const bool radix_cache : {false, true}) {
      runner::SimRunner runner({.vocab_size = kLoopVocabSize, .block_tokens = 16});
      StepLoop loop(runner, {.radix_cache = radix_cache});
      Recorder recorder(loop);
      core::Request request{.prompt = prompt_of(length), .sampling = greedy_request(20)};
      for (core::RequestId id = 0; id < 3; ++id) {
        request.id = id;
        request.sampling.return_prompt_logprobs = id == 2;
        ASSERT_TRUE(loop.add(request));
        recorder.run();
        EXPECT_EQ(ids_of(recorder.finished[id].tokens),
                  ids_of(expected_output(request, 0, {}, kLoopVocabSize).tokens));
      }
      EXPECT_EQ(recorder.finished[1].num_cached_tokens, radix_cache ? (length - 1) / 16 * 16 : 0);
      EXPECT_EQ(recorder.finished[2].num_cached_tokens, 0);
      EXPECT_EQ(recorder.finished[2].prompt_logprobs.size(), static_cast<size_t>(length) - 1);
    }
}

TEST_F(SimEngine, flushes_the_cache_when_it_is_idle_and_refuses_otherwise) {
  runner::SimRunner runner({.vocab_size = kLoopVocabSize, .block_tokens = 4});
  StepLoop loop(runner, {});
  Recorder recorder(loop);
  ASSERT_TRUE(loop.add({.id = 1, .prompt = prompt_of(9), .sampling = greedy_request(3)}));
  const Status refused = loop.flush_cache();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the cache is in use by 1 requests");
  recorder.run();
  EXPECT_GT(loop.scheduler().kv_usage().num_cached, 0);
  EXPECT_TRUE(loop.flush_cache());
  EXPECT_EQ(loop.scheduler().kv_usage().num_cached, 0);
}

TEST_F(SimEngine, tells_when_a_request_was_admitted_got_its_first_token_and_ended) {
  class StepClock : public Clock {
   public:
    time_point now() const override { return time; }
    time_point time{};
  } clock;
  runner::SimRunner runner({.vocab_size = kLoopVocabSize, .max_slots = 1});
  StepLoop loop(runner, {.overlap = false, .clock = &clock});
  for (core::RequestId id = 0; id < 2; ++id)
    ASSERT_TRUE(loop.add({.id = id, .prompt = prompt_of(4), .sampling = greedy_request(3)}));
  std::vector<RequestTimes> times;
  bool busy = true;
  while (busy) {
    StepUpdates updates;
    busy = loop.step(updates);
    clock.time += std::chrono::seconds(1);
    for (const RequestUpdate& update : updates.requests)
      if (update.end != nullptr) times.push_back(update.end->times);
  }
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].admitted_seconds, 0);
  EXPECT_EQ(times[0].first_token_seconds, 0);
  EXPECT_EQ(times[0].finished_seconds, 2);
  EXPECT_EQ(times[1].admitted_seconds, 4);  // the slot is released by step 3
  EXPECT_EQ(times[1].finished_seconds, 6);
}

TEST_F(SimEngine, lets_callbacks_add_and_cancel) {
  runner::SimRunner runner({.vocab_size = kLoopVocabSize});
  StepLoop loop(runner, {});
  OutputCollector collector;
  std::vector<core::RequestOutput> outputs;
  collector.on_tokens = [&](core::RequestId id, std::span<const core::SampledToken>) {
    if (id == 2) loop.cancel(2);
  };
  collector.on_finish = [&](core::RequestOutput output) {
    if (output.id == 1) {
      EXPECT_TRUE(loop.add({.id = 2, .prompt = prompt_of(4), .sampling = greedy_request(50)}));
    }
    outputs.push_back(std::move(output));
  };
  ASSERT_TRUE(loop.add({.id = 1, .prompt = prompt_of(4), .sampling = greedy_request(3)}));
  collector.run(loop);
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[1].finish_reason, core::FinishReason::kCancelled);
  EXPECT_EQ(outputs[1].tokens.size(), 1u);
}

TEST_F(SimEngine, hands_the_runner_back_when_it_is_destroyed) {
  runner::SimRunner runner({.vocab_size = kLoopVocabSize});
  {
    StepLoop loop(runner, {});
    ASSERT_TRUE(loop.add({.id = 1, .prompt = prompt_of(4), .sampling = greedy_request(30)}));
    StepUpdates updates;
    loop.step(updates);
    loop.step(updates);
    EXPECT_EQ(runner.in_flight(), 1);
  }
  EXPECT_EQ(runner.in_flight(), 0);
  StepLoop loop(runner, {});
  Recorder recorder(loop);
  const core::Request request{.id = 1, .prompt = prompt_of(4), .sampling = greedy_request(5)};
  for (core::RequestId id = 0; id < 9; ++id) {
    core::Request copy = request;
    copy.id = id;
    ASSERT_TRUE(loop.add(std::move(copy)));
  }
  recorder.run();
  EXPECT_EQ(ids_of(recorder.finished[8].tokens),
            ids_of(expected_output(request, 0, {}, kLoopVocabSize).tokens));
}

TEST_F(SimEngine, draws_a_seed_and_reports_it) {
  core::SamplingParams params = greedy_request(8);
  params.temperature = 1;
  runner::SimRunner runner({.vocab_size = kLoopVocabSize});
  StepLoop loop(runner, {.random_seed = 9});
  Recorder recorder(loop);
  for (int i = 1; i <= 2; ++i)
    ASSERT_TRUE(loop.add({.id = i, .prompt = prompt_of(4), .sampling = params}));
  recorder.run();
  EXPECT_NE(recorder.finished[1].seed, recorder.finished[2].seed);
  EXPECT_NE(ids_of(recorder.finished[1].tokens), ids_of(recorder.finished[2].tokens));
  params.seed = recorder.finished[1].seed;
  ASSERT_TRUE(loop.add({.id = 3, .prompt = prompt_of(4), .sampling = params}));
  recorder.run();
  EXPECT_EQ(ids_of(recorder.finished[3].tokens), ids_of(recorder.finished[1].tokens));
}

TEST_F(SimEngine, refuses_what_cannot_run_and_says_why) {
  runner::SimRunner runner({.vocab_size = kLoopVocabSize,
                            .num_blocks = 4,
                            .block_tokens = 16,
                            .max_context_tokens = 60});
  StepLoop loop(runner, {});
  Recorder recorder(loop);
  const auto message = [&](core::Request request) {
    const Status status = loop.add(std::move(request));
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(message({.id = 1, .prompt = {}, .sampling = greedy_request(1)}),
            "the prompt has no tokens, must have one");
  EXPECT_EQ(message({.id = 1, .prompt = {1, 1000}, .sampling = greedy_request(1)}),
            "prompt token 1 is 1000, must be in [0, 1000), the vocabulary");
  EXPECT_EQ(message({.id = 1, .prompt = {-1}, .sampling = greedy_request(1)}),
            "prompt token 0 is -1, must be in [0, 1000), the vocabulary");
  EXPECT_EQ(message({.id = 1, .prompt = prompt_of(50), .sampling = greedy_request(11)}),
            "prompt of 50 tokens plus max_new_tokens 11 needs 61 tokens, the context is 60");
  core::SamplingParams bad = greedy_request(1);
  bad.top_p = 0;
  EXPECT_EQ(message({.id = 1, .prompt = {1}, .sampling = bad}), "top_p is 0, must be in (0, 1]");
  EXPECT_EQ(message({.id = 1, .prompt = prompt_of(50), .sampling = greedy_request(10)}),
            "accepted");
  EXPECT_EQ(message({.id = 1, .prompt = {1}, .sampling = greedy_request(1)}),
            "request id 1 is in use");
  recorder.run();
}

TEST_F(SimEngine, refuses_settings_out_of_range) {
  runner::SimRunner runner({.vocab_size = kLoopVocabSize, .max_slots = 4});
  const auto message = [&](const StepLoopConfig& config) -> std::string {
    try {
      StepLoop loop(runner, config);
    } catch (const StartupError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({.chunked_prefill_size = 0}), "chunked_prefill_size is 0, must be >= 1");
  EXPECT_THAT(message({.max_running_requests = 5}), HasSubstr("must be in [0, 4]"));
  // Nothing is cut to what the runner can.
  EXPECT_EQ(message({.max_running_requests = 4}), "accepted");
  EXPECT_EQ(StepLoop(runner, {.max_running_requests = 4}).max_running_requests(), 4);
  runner::SimRunner small_steps(
      {.vocab_size = kLoopVocabSize, .max_slots = 4, .max_batch_tokens = 3});
  EXPECT_EQ(StepLoop(small_steps, {}).max_running_requests(), 3);
  EXPECT_THROW(StepLoop(small_steps, {.max_running_requests = 4}), StartupError);
  EXPECT_THAT(message({.eos_token_ids = {kLoopVocabSize}}), HasSubstr("eos token id is 1000"));
}

}  // namespace
}  // namespace fathom::engine
