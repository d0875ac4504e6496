// Pauses of the engine: nothing is computed in one, requests may come and end, and what goes on afterwards has the
// tokens that it has without a pause.

#include <gtest/gtest.h>

#include <future>

#include "tests/engine/serving_scenario.h"

namespace fathom::engine {
namespace {

using core::FinishReason;
using testing::Answer;
using testing::CollectingSink;
using testing::eventually;
using testing::expect_right_tokens;
using testing::HoldingSink;
using testing::ManualClock;

constexpr int kPausedTokens = 100;
constexpr size_t kPausedRequests = 4;

core::Request request_to_pause(int num_prompt_tokens, int max_new_tokens, int32_t first_token) {
  core::Request request;
  for (int i = 0; i < num_prompt_tokens; ++i) request.prompt.push_back((first_token + i) % 1000);
  request.sampling.max_new_tokens = max_new_tokens;
  request.sampling.temperature = first_token % 2 == 0 ? 0.0F : 1.0F;
  request.sampling.seed = 7;
  return request;
}

struct PauseCase {
  const char* name;
  bool overlap, speculates;
  PauseMode mode;
};
void PrintTo(const PauseCase& c, std::ostream* out) { *out << c.name; }

class PausedEngine : public ::testing::TestWithParam<PauseCase> {
 protected:
  PausedEngine()
      : runner_({.num_blocks = 256,
                 .max_slots = 8,
                 .drafter = GetParam().speculates
                                ? runner::SimDrafterConfig{.shape = {.num_steps = 3,
                                                                     .top_k = 1,
                                                                     .num_draft_tokens = 4},
                                                           .agreement = 0.7}
                                : runner::SimDrafterConfig{}}),
        engine_(runner_,
                {.step = {.chunked_prefill_size = 96,
                          .overlap = GetParam().overlap,
                          .speculation = {.enabled = GetParam().speculates}},
                 .integrity_interval_seconds = 0},
                sink_) {}

  // Requests that are in the midst of their answers when the engine has come to a halt.
  void pause_some() {
    // They begin together: otherwise the first may have ended before the last is there.
    ASSERT_TRUE(engine_.pause(PauseMode::kInPlace));
    for (size_t i = 0; i < kPausedRequests; ++i) {
      const auto first = static_cast<int32_t>(100 * i + i);
      requests_.push_back(request_to_pause(70, kPausedTokens, first));
      ids_.push_back(engine_.submit(requests_.back(), 0).value());
    }
    engine_.resume();
    ASSERT_TRUE(sink_.wait_until_held());
    std::future<Status> paused =
        std::async(std::launch::async, [&] { return engine_.pause(GetParam().mode); });
    EXPECT_TRUE(eventually([&] { return engine_.snapshot().paused; }));
    sink_.let_go();
    ASSERT_TRUE(paused.get());
  }

  std::vector<size_t> num_tokens() {
    std::vector<size_t> counts;
    for (const core::RequestId id : ids_) counts.push_back(sink_.answer(id).tokens.size());
    return counts;
  }

  runner::SimRunner runner_;
  HoldingSink sink_{kPausedRequests, 2};
  ServingEngine engine_;
  std::vector<core::Request> requests_;
  std::vector<core::RequestId> ids_;
};

TEST_P(PausedEngine, ComputesNothingAndGoesOnExactly) {
  ASSERT_NO_FATAL_FAILURE(pause_some());
  const bool retracts = GetParam().mode == PauseMode::kRetract;
  const EngineSnapshot halted = engine_.snapshot();
  EXPECT_EQ(halted.num_running, retracts ? 0 : static_cast<int>(kPausedRequests));
  EXPECT_EQ(halted.num_waiting, retracts ? static_cast<int>(kPausedRequests) : 0);
  const std::vector<size_t> counts = num_tokens();
  // Who comes waits, and who leaves is let go: both need the engine's thread, which computes nothing for them.
  requests_.push_back(request_to_pause(10, 20, 500));
  ids_.push_back(engine_.submit(requests_.back(), 0).value());
  const core::RequestId leaving = engine_.submit(request_to_pause(10, 20, 600), 0).value();
  engine_.cancel(leaving);
  engine_.cancel(ids_[0]);
  ASSERT_TRUE(sink_.wait_for_end(leaving));
  ASSERT_TRUE(sink_.wait_for_end(ids_[0]));
  EXPECT_EQ(sink_.answer(leaving).reason, FinishReason::kCancelled);
  EXPECT_EQ(sink_.answer(ids_[0]).reason, FinishReason::kCancelled);
  std::vector<size_t> later = num_tokens();
  EXPECT_EQ(later.back(), 0U);
  later.pop_back();
  EXPECT_EQ(later, counts);
  EXPECT_EQ(engine_.flush_cache().has_value(), retracts);

  engine_.resume();
  EXPECT_FALSE(engine_.snapshot().paused);
  ASSERT_TRUE(sink_.wait_for_ends(ids_.size() + 1));
  for (size_t i = 1; i < ids_.size(); ++i) {
    SCOPED_TRACE(i);
    const Answer answer = sink_.answer(ids_[i]);
    EXPECT_EQ(answer.reason, FinishReason::kLength) << answer.error;
    expect_right_tokens(requests_[i], answer, 1000);
  }
  ASSERT_TRUE(eventually([&] { return engine_.snapshot().num_used_blocks() == 0; }));
  EXPECT_EQ(engine_.snapshot().num_violations, 0);
  EXPECT_EQ(engine_.snapshot().num_retractions, retracts ? int64_t{kPausedRequests} : 0);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, PausedEngine,
    ::testing::Values(PauseCase{"InPlace", true, false, PauseMode::kInPlace},
                      PauseCase{"InPlaceWithoutOverlap", false, false, PauseMode::kInPlace},
                      PauseCase{"InPlaceWithDrafts", true, true, PauseMode::kInPlace},
                      PauseCase{"Retract", true, false, PauseMode::kRetract},
                      PauseCase{"RetractWithoutOverlap", false, false, PauseMode::kRetract},
                      PauseCase{"RetractWithDrafts", true, true, PauseMode::kRetract}),
    [](const auto& info) { return info.param.name; });

runner::SimConfig room_to_pause() { return {.num_blocks = 8192, .max_slots = 4}; }

TEST(Pause, WithAbortEndsWhatIsThereAndHoldsWhatComes) {
  runner::SimRunner runner(room_to_pause());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  std::vector<core::RequestId> there;
  for (int32_t i = 0; i < 6; ++i)
    there.push_back(engine.submit(request_to_pause(5, 200'000, i), 0).value());
  ASSERT_TRUE(engine.pause(PauseMode::kAbort));
  for (const core::RequestId id : there) {
    EXPECT_EQ(sink.answer(id).num_ends, 1) << "pause() returned before";
    EXPECT_EQ(sink.answer(id).reason, FinishReason::kCancelled);
  }
  EXPECT_TRUE(engine.flush_cache());
  const core::Request late = request_to_pause(5, 20, 1);
  const core::RequestId id = engine.submit(late, 0).value();
  ASSERT_TRUE(engine.pause(PauseMode::kInPlace));  // a pause in a pause changes nothing
  EXPECT_EQ(sink.answer(id).tokens.size(), 0U);
  engine.resume();
  ASSERT_TRUE(sink.wait_for_end(id));
  expect_right_tokens(late, sink.answer(id), 1000);
}

TEST(Pause, IsOverWhenTheServerDrains) {
  runner::SimRunner runner(room_to_pause());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  ASSERT_TRUE(engine.pause(PauseMode::kInPlace));
  const core::Request request = request_to_pause(5, 20, 1);
  const core::RequestId id = engine.submit(request, 0).value();
  engine.begin_drain();
  ASSERT_TRUE(sink.wait_for_end(id));
  expect_right_tokens(request, sink.answer(id), 1000);
  EXPECT_FALSE(engine.snapshot().paused);
  EXPECT_FALSE(engine.pause(PauseMode::kInPlace));
}

TEST(Pause, ThatIsEndedBeforeTheHaltSaysSo) {
  runner::SimRunner runner(room_to_pause());
  HoldingSink sink(1, 1);
  ServingEngine engine(runner, {}, sink);
  const core::RequestId id = engine.submit(request_to_pause(5, 200'000, 1), 0).value();
  ASSERT_TRUE(sink.wait_until_held());
  std::future<Status> paused =
      std::async(std::launch::async, [&] { return engine.pause(PauseMode::kInPlace); });
  EXPECT_TRUE(eventually([&] { return engine.snapshot().paused; }));
  engine.resume();
  sink.let_go();
  EXPECT_FALSE(paused.get());
  ASSERT_TRUE(sink.wait_for_tokens(id, 50)) << "it goes on";
  engine.cancel(id);
  ASSERT_TRUE(sink.wait_for_end(id));
}

TEST(Pause, KeepsTheLimitOfTheQueueAndIsNoStall) {
  ManualClock clock;
  runner::SimRunner runner(room_to_pause());
  CollectingSink sink;
  ServingEngine engine(runner, {.step = {.clock = &clock}, .max_queue_seconds = 60}, sink);
  const core::RequestId running = engine.submit(request_to_pause(5, 200'000, 1), 0).value();
  ASSERT_TRUE(sink.wait_for_tokens(running, 1));
  ASSERT_TRUE(engine.pause(PauseMode::kInPlace));
  const core::RequestId waiting = engine.submit(request_to_pause(5, 20, 1), 0).value();
  clock.advance(std::chrono::seconds(59));
  EXPECT_EQ(engine.snapshot().seconds_since_progress, 0);
  EXPECT_EQ(sink.answer(waiting).num_ends, 0);
  clock.advance(std::chrono::seconds(2));
  ASSERT_TRUE(sink.wait_for_end(waiting));
  EXPECT_EQ(sink.answer(waiting).reason, FinishReason::kFailed);
  EXPECT_EQ(sink.answer(running).num_ends, 0);
  engine.resume();
  engine.cancel(running);
  ASSERT_TRUE(sink.wait_for_end(running));
}

TEST(Pause, LetsTheEngineGo) {
  runner::SimRunner runner(room_to_pause());
  CollectingSink sink;
  ServingEngine engine(runner, {}, sink);
  ASSERT_TRUE(engine.submit(request_to_pause(5, 200'000, 1), 0));
  ASSERT_TRUE(engine.pause(PauseMode::kRetract));
}

}  // namespace
}  // namespace fathom::engine
