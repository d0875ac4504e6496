#include "engine/serving_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/failpoint.h"
#include "base/rng.h"
#include "base/startup_error.h"
#include "tests/engine/serving_scenario.h"
#include "tests/engine/toy_constraint.h"
#include "tests/sanitized.h"

namespace fathom::engine {
namespace {

using core::FinishReason;
using testing::Answer;
using testing::BlockingSink;
using testing::chain_of_three;
using testing::CollectingSink;
using testing::endless_request;
using testing::eventually;
using testing::expect_right_tokens;
using ::testing::HasSubstr;
using testing::HoldingSink;
using testing::make_request;
using testing::ManualClock;
using testing::roomy;

constexpr int kRequestsPerClient = kIsSanitized ? 25 : 100;

TEST(ServingEngine, AnswersARequestWithTheRightTokensAndItsTag) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  const core::Request request = make_request(70, 20);
  const Result<core::RequestId> id = engine.submit(request, 7);
  ASSERT_TRUE(id);
  ASSERT_TRUE(sink.wait_for_end(*id));
  const Answer answer = sink.answer(*id);
  EXPECT_EQ(answer.reason, FinishReason::kLength);
  EXPECT_EQ(answer.client_tag, 7u);
  expect_right_tokens(request, answer, 1000);
  EXPECT_GE(answer.times.admitted_seconds, 0);
  EXPECT_GE(answer.times.first_token_seconds, answer.times.admitted_seconds);
  EXPECT_GE(answer.times.finished_seconds, answer.times.first_token_seconds);
}

struct Mode {
  const char* name;
  bool overlap;
  int num_blocks;  // few make the engine retract
  bool speculates = false;
};

void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.name; }

class ServingEngineClients : public ::testing::TestWithParam<Mode> {};

// One client: submits, sometimes refused; then lets its requests run, stops or cancels them.
void run_client(ServingEngine& engine, CollectingSink& sink, uint64_t seed,
                std::map<core::RequestId, core::Request>& accepted) {
  uint64_t draw = 0;
  const auto random = [&](uint32_t below) { return philox(seed, 0, draw++)[0] % below; };
  for (int i = 0; i < kRequestsPerClient; ++i) {
    core::Request request =
        make_request(1 + static_cast<int>(random(150)), static_cast<int>(random(60)),
                     static_cast<int32_t>(random(1000)));
    request.priority = static_cast<int>(random(3));
    if (random(3) == 0) {
      request.sampling.temperature = 1;
      request.sampling.seed = random(1000);
    }
    const Result<core::RequestId> id = engine.submit(request, static_cast<uint32_t>(seed));
    if (!id) {
      EXPECT_EQ(id.error().code, ErrorCode::kResourceEmpty) << id.error().message;
      std::this_thread::yield();
      continue;
    }
    accepted.emplace(*id, request);
    switch (random(6)) {
      case 0:
        engine.cancel(*id);
        break;
      case 1:
        engine.stop(*id);
        break;
      case 2:
        if (request.sampling.max_new_tokens > 3) sink.wait_for_tokens(*id, 2);
        engine.cancel(*id);
        break;
      case 3:
        EXPECT_TRUE(sink.wait_for_end(*id));
        break;
      default:
        break;
    }
  }
}

TEST_P(ServingEngineClients, EveryAcceptedRequestGetsItsTokensInOrderAndOneEnd) {
  constexpr int kClients = 6;
  const Mode mode = GetParam();
  runner::SimRunner runner(
      {.num_blocks = mode.num_blocks,
       .max_slots = 6,
       .drafter = mode.speculates ? chain_of_three(0.7) : runner::SimDrafterConfig{}});
  CollectingSink sink;
  ServingEngine engine(runner,
                       {.step = {.chunked_prefill_size = 96,
                                 .overlap = mode.overlap,
                                 .speculation = {.enabled = mode.speculates}},
                        .max_queued_requests = 20,
                        .integrity_interval_seconds = 0},
                       sink);
  std::vector<std::map<core::RequestId, core::Request>> accepted(kClients);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < kClients; ++i)
    clients.emplace_back([&, i] { run_client(engine, sink, 100 + i, accepted[i]); });
  for (std::thread& client : clients) client.join();
  size_t num_accepted = 0;
  for (const auto& requests : accepted) num_accepted += requests.size();
  ASSERT_TRUE(sink.wait_for_ends(num_accepted));
  for (size_t i = 0; i < kClients; ++i) {
    for (const auto& [id, request] : accepted[i]) {
      SCOPED_TRACE(id);
      const Answer answer = sink.answer(id);
      EXPECT_EQ(answer.num_ends, 1);
      EXPECT_EQ(answer.client_tag, 100 + i);
      EXPECT_NE(answer.reason, FinishReason::kFailed) << answer.error;
      expect_right_tokens(request, answer, 1000);
    }
  }
  EXPECT_EQ(sink.num_answers(), num_accepted) << "updates of requests that nobody submitted";
  // The slots of the last requests are released by steps of their own.
  ASSERT_TRUE(eventually([&] { return engine.snapshot().num_used_blocks() == 0; }));
  const EngineSnapshot end = engine.snapshot();
  EXPECT_EQ(end.num_violations, 0);
  EXPECT_EQ(end.num_received, static_cast<int64_t>(num_accepted));
  EXPECT_EQ(end.num_ended, static_cast<int64_t>(num_accepted));
  EXPECT_FALSE(end.has_work);
  // A tight pool retracts when enough requests run together, which is up to the threads' turns; the next
  // test makes sure. An ample one never does.
  if (GetParam().num_blocks > 10) {
    EXPECT_EQ(end.num_retractions, 0);
  }
  EXPECT_EQ(end.num_running + end.num_waiting, 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, ServingEngineClients,
                         ::testing::Values(Mode{"overlap", true, 512}, Mode{"plain", false, 512},
                                           Mode{"retracting", true, 7},
                                           Mode{"speculating", true, 512, true}),
                         [](const auto& mode) { return mode.param.name; });

TEST(ServingEngine, RetractsInATightPoolAndAnswersAllTheSame) {
  runner::SimRunner runner({.num_blocks = 7, .max_slots = 6});
  BlockingSink sink;
  ServingEngine engine(runner, {.integrity_interval_seconds = 0}, sink);
  std::map<core::RequestId, core::Request> accepted;
  const auto submit = [&](int32_t first_token) {
    const core::Request request = make_request(60, 150, first_token);
    const Result<core::RequestId> id = engine.submit(request, 0);
    ASSERT_TRUE(id);
    accepted.emplace(*id, request);
  };
  {
    // All are there before the second step; each grows to four of the seven blocks.
    const std::lock_guard lock(sink.gate_);
    submit(0);
    ASSERT_TRUE(sink.wait_for_tokens(accepted.begin()->first, 1));
    for (int32_t i = 1; i < 6; ++i) submit(100 * i);
  }
  ASSERT_TRUE(sink.wait_for_ends(accepted.size()));
  for (const auto& [id, request] : accepted) {
    EXPECT_EQ(sink.answer(id).reason, FinishReason::kLength) << sink.answer(id).error;
    expect_right_tokens(request, sink.answer(id), 1000);
  }
  EXPECT_GT(engine.snapshot().num_retractions, 0);
  EXPECT_EQ(engine.snapshot().num_violations, 0);
}

TEST(ServingEngine, EndsARequestAsStoppedOrCancelledOnDemand) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  const Result<core::RequestId> stopped = engine.submit(endless_request(), 0);
  const Result<core::RequestId> cancelled = engine.submit(endless_request(), 0);
  ASSERT_TRUE(stopped && cancelled);
  ASSERT_TRUE(sink.wait_for_tokens(*stopped, 3) && sink.wait_for_tokens(*cancelled, 3));
  engine.stop(*stopped);
  engine.cancel(*cancelled);
  engine.cancel(12345);  // unknown
  ASSERT_TRUE(sink.wait_for_ends(2));
  EXPECT_EQ(sink.answer(*stopped).reason, FinishReason::kStop);
  EXPECT_EQ(sink.answer(*cancelled).reason, FinishReason::kCancelled);
  EXPECT_TRUE(eventually([&] { return engine.snapshot().num_used_blocks() == 0; }));
}

TEST(ServingEngine, CancelsEverythingAtOnce) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(engine.submit(endless_request(), 0));
  engine.cancel_all();
  ASSERT_TRUE(sink.wait_for_ends(10));
  for (core::RequestId id = 1; id <= 10; ++id)
    EXPECT_EQ(sink.answer(id).reason, FinishReason::kCancelled);
}

TEST(ServingEngine, RefusesBadRequestsInTheCallersThread) {
  runner::SimRunner runner({.num_blocks = 4, .max_slots = 2});
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  core::Request foreign_token = make_request(3, 4);
  foreign_token.prompt[1] = 1000;
  core::Request bad_sampling = make_request(3, 4);
  bad_sampling.sampling.top_p = 2;
  EXPECT_EQ(engine.submit(make_request(0, 4), 0).error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(engine.submit(foreign_token, 0).error().message, HasSubstr("prompt token 1 is 1000"));
  EXPECT_EQ(engine.submit(bad_sampling, 0).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(engine.submit(make_request(4 * 64, 1), 0).error().code, ErrorCode::kTooLong);
  EXPECT_EQ(engine.snapshot().num_received, 0);
  EXPECT_EQ(engine.metrics().totals.rejected_invalid.value(), 4);
}

TEST(ServingEngine, RefusesWhatExceedsTheQueueAndAcceptsAgainLater) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {.step = {.max_running_requests = 2}, .max_queued_requests = 3},
                       sink);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine.submit(endless_request(), 0));
  const Result<core::RequestId> refused = engine.submit(endless_request(), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceEmpty);
  EXPECT_EQ(refused.error().message,
            "the queue is full: 5 requests of at most 5 are running or waiting");
  ASSERT_TRUE(eventually([&] { return engine.snapshot().num_running == 2; }));
  EXPECT_EQ(engine.snapshot().num_waiting, 3);
  engine.cancel(1);
  ASSERT_TRUE(sink.wait_for_end(1));
  EXPECT_TRUE(engine.submit(endless_request(), 0)) << "room again once an end was handed over";
  EXPECT_EQ(engine.metrics().totals.rejected_queue_full.value(), 1);
}

TEST(ServingEngine, FailsARequestThatWaitsTooLongAndLeavesTheRunningOneAlone) {
  ManualClock clock;
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(
      runner, {.step = {.max_running_requests = 1, .clock = &clock}, .max_queue_seconds = 600},
      sink);
  const Result<core::RequestId> running = engine.submit(endless_request(), 0);
  ASSERT_TRUE(running && sink.wait_for_tokens(*running, 1));
  const Result<core::RequestId> waiting = engine.submit(endless_request(), 0);
  ASSERT_TRUE(waiting);
  clock.advance(std::chrono::seconds(599));
  ASSERT_TRUE(sink.wait_for_tokens(*running, sink.answer(*running).tokens.size() + 10));
  EXPECT_EQ(sink.answer(*waiting).num_ends, 0);
  clock.advance(std::chrono::seconds(1));
  ASSERT_TRUE(sink.wait_for_end(*waiting));
  EXPECT_EQ(sink.answer(*waiting).reason, FinishReason::kFailed);
  EXPECT_EQ(sink.answer(*waiting).error, "waited more than 600 seconds in the queue, the limit");
  EXPECT_EQ(sink.answer(*running).num_ends, 0);
  EXPECT_EQ(engine.metrics().totals.queue_timeouts.value(), 1);
}

TEST(ServingEngine, CountsNoTimeoutOfARequestThatIsCancelledInTheTurnOfItsDeadline) {
  ManualClock clock;
  runner::SimRunner runner(roomy());
  HoldingSink sink(1, 1);
  ServingEngine engine(
      runner, {.step = {.max_running_requests = 1, .clock = &clock}, .max_queue_seconds = 600},
      sink);
  ASSERT_TRUE(engine.submit(endless_request(), 0));
  ASSERT_TRUE(sink.wait_until_held());
  const Result<core::RequestId> cancelled = engine.submit(endless_request(), 0);
  const Result<core::RequestId> late = engine.submit(endless_request(), 0);
  ASSERT_TRUE(cancelled && late);
  engine.cancel(*cancelled);
  clock.advance(std::chrono::seconds(600));
  sink.let_go();
  ASSERT_TRUE(sink.wait_for_end(*cancelled) && sink.wait_for_end(*late));
  EXPECT_EQ(sink.answer(*cancelled).reason, FinishReason::kCancelled);
  EXPECT_EQ(sink.answer(*late).reason, FinishReason::kFailed);
  EXPECT_EQ(engine.metrics().totals.queue_timeouts.value(), 1);
}

TEST(ServingEngine, FlushesTheCacheOnlyWithoutRequests) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  EXPECT_TRUE(engine.flush_cache()) << "an idle engine";
  const Result<core::RequestId> id = engine.submit(endless_request(), 0);
  ASSERT_TRUE(id);
  EXPECT_EQ(engine.flush_cache().error().code, ErrorCode::kResourceEmpty);
  ASSERT_TRUE(sink.wait_for_tokens(*id, 200));
  engine.cancel(*id);
  ASSERT_TRUE(sink.wait_for_end(*id));
  EXPECT_TRUE(engine.flush_cache());
  EXPECT_TRUE(eventually([&] {
    const EngineSnapshot now = engine.snapshot();
    return now.num_free_blocks == now.num_blocks;
  }));
}

TEST(ServingEngine, DrainsByRefusingNewRequestsAndFinishingTheOthers) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(engine.submit(make_request(30, 50, i), 0));
  engine.begin_drain();
  EXPECT_EQ(engine.submit(make_request(3, 4), 0).error().code, ErrorCode::kCancelled);
  ASSERT_TRUE(sink.wait_for_ends(20));
  for (core::RequestId id = 1; id <= 20; ++id)
    EXPECT_EQ(sink.answer(id).reason, FinishReason::kLength);
  EXPECT_TRUE(eventually([&] { return !engine.snapshot().has_work; }));
  EXPECT_TRUE(engine.snapshot().draining);
}

TEST(ServingEngine, IsDestroyedInTheMiddleOfWorkAndHandsTheRunnerBack) {
  runner::SimRunner runner(roomy());
  for (int round = 0; round < 5; ++round) {
    CollectingSink sink;
    {
      ServingEngine engine(runner, {}, sink);
      for (int i = 0; i < 10; ++i) ASSERT_TRUE(engine.submit(endless_request(), 0));
      ASSERT_TRUE(sink.wait_for_tokens(1, static_cast<size_t>(round)));
    }
    EXPECT_EQ(runner.in_flight(), 0);
    EXPECT_EQ(sink.answer(1).num_ends, 0);
  }
}

TEST(ServingEngine, ARequestThatFailsInTheEngineFailsAlone) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {.integrity_interval_seconds = 0}, sink);
  arm_failpoint("serving_engine.add", 2);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine.submit(make_request(10, 30), 3));
  ASSERT_TRUE(sink.wait_for_ends(3));
  disarm_failpoints();
  EXPECT_EQ(sink.answer(1).reason, FinishReason::kLength);
  EXPECT_EQ(sink.answer(2).reason, FinishReason::kFailed);
  EXPECT_EQ(sink.answer(2).client_tag, 3u);
  EXPECT_EQ(sink.answer(2).error, "internal error");
  EXPECT_EQ(sink.answer(3).reason, FinishReason::kLength);
  EXPECT_TRUE(eventually([&] { return !engine.snapshot().has_work; }));
  EXPECT_EQ(engine.snapshot().num_violations, 0);
}

TEST(ServingEngine, ASliceWithoutFiniteLogitsFailsAlone) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  arm_failpoint("sim_runner.slice", 20);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine.submit(make_request(10, 30), 0));
  ASSERT_TRUE(sink.wait_for_ends(4));
  disarm_failpoints();
  int num_failed = 0;
  for (core::RequestId id = 1; id <= 4; ++id)
    num_failed += sink.answer(id).reason == FinishReason::kFailed ? 1 : 0;
  EXPECT_EQ(num_failed, 1);
}

TEST(ServingEngine, CountsAViolatedInvariantAndGoesOn) {
  // After every step, or a part of it.
  for (const double interval : {0.0, 1e-9}) {
    runner::SimRunner runner(roomy());
    CollectingSink sink;
    ServingEngine engine(runner, {.integrity_interval_seconds = interval}, sink);
    arm_failpoint("serving_engine.integrity", 5);
    const core::Request request = make_request(10, 30);
    const Result<core::RequestId> id = engine.submit(request, 0);
    ASSERT_TRUE(id && sink.wait_for_end(*id));
    disarm_failpoints();
    expect_right_tokens(request, sink.answer(*id), 1000);
    EXPECT_EQ(engine.snapshot().num_violations, 1);
    EXPECT_EQ(engine.metrics().totals.integrity_violations.value(), 1);
  }
}

TEST(ServingEngine, LimitsTokensByMasksThatItsWorkersCompute) {
  constexpr int kVocabSize = 200;
  runner::SimRunner runner({.vocab_size = kVocabSize, .num_blocks = 64, .max_slots = 8});
  CollectingSink sink;
  ServingEngine engine(runner, {.num_mask_workers = 3, .integrity_interval_seconds = 0}, sink);
  std::map<core::RequestId, core::Request> accepted;
  for (int i = 0; i < 40; ++i) {
    core::Request request;
    request.prompt.assign(static_cast<size_t>(10 + i), i);
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = 30;
    const testing::ToyConstraint constraint({.vocab_size = kVocabSize, .divisor = 7});
    if (i % 4 != 0) request.constraint = constraint.clone();
    const Result<core::RequestId> id = engine.submit(request, 0);
    ASSERT_TRUE(id);
    // The engine moves the constraint on; the expectation starts from a fresh one.
    if (request.constraint) request.constraint = constraint.clone();
    accepted.emplace(*id, request);
  }
  ASSERT_TRUE(sink.wait_for_ends(40));
  for (const auto& [id, request] : accepted) {
    EXPECT_EQ(sink.answer(id).reason, FinishReason::kLength) << sink.answer(id).error;
    expect_right_tokens(request, sink.answer(id), kVocabSize);
  }
  const StepHistograms& steps = engine.metrics().steps;
  EXPECT_GT(steps.mask_seconds.snapshot().num_observations(), 30u);
  EXPECT_EQ(steps.mask_wait_seconds.snapshot().num_observations(),
            steps.step_seconds.snapshot().num_observations());
  EXPECT_EQ(steps.forward_seconds.snapshot().num_observations(), 0u) << "nothing measured it";
  EXPECT_EQ(steps.sampling_seconds.snapshot().num_observations(), 0u);
}

TEST(ServingEngine, RefusesSettingsOutOfRange) {
  runner::SimRunner runner(roomy());
  CollectingSink sink;
  const auto construct = [&](const ServingConfig& config) {
    const ServingEngine engine(runner, config, sink);
  };
  EXPECT_THROW(construct({.max_queued_requests = -1}), StartupError);
  EXPECT_THROW(construct({.max_queue_seconds = 0}), StartupError);
  EXPECT_THROW(construct({.num_mask_workers = 0}), StartupError);
  EXPECT_THROW(construct({.integrity_interval_seconds = -1}), StartupError);
  EXPECT_THROW(construct({.step = {.chunked_prefill_size = 0}}), StartupError);
}

}  // namespace
}  // namespace fathom::engine
