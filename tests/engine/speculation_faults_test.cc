// Faults planted in speculative decoding, and that the checks the simulation relies on notice each of them.

#include <gtest/gtest.h>

#include "base/failpoint.h"
#include "tests/engine/sim_scenario.h"

namespace fathom::engine {
namespace {

using testing::expected_output;
using testing::ids_of;
using testing::Recorder;

constexpr int kFaultsVocabSize = 500;

class PlantedFault : public ::testing::Test {
 protected:
  ~PlantedFault() override { disarm_failpoints(); }

  static runner::SimConfig sim() {
    return {.vocab_size = kFaultsVocabSize,
            .num_blocks = 100,
            .block_tokens = 2,
            .drafter = {.shape = {.num_steps = 3, .top_k = 3, .num_draft_tokens = 9},
                        .agreement = 0.6}};
  }
  static core::Request request() {
    core::Request request{.id = 0, .prompt = {1, 2, 3, 4, 5}};
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = 40;
    return request;
  }
  // Plants the fault when the nth chance comes; what the client gets.
  std::vector<int32_t> tokens_with(const char* fault, int nth, const core::Request& request) {
    runner::SimRunner runner(sim());
    StepLoop loop(runner, {.speculation = {.enabled = true}});
    Recorder recorder(loop);
    EXPECT_TRUE(loop.add(request));
    arm_failpoint(fault, nth);
    recorder.run();
    disarm_failpoints();
    return recorder.streamed.at(0);
  }
};

TEST_F(PlantedFault, none_is_no_difference) {
  EXPECT_EQ(tokens_with("nowhere", 1, request()),
            ids_of(expected_output(request(), 0, {}, kFaultsVocabSize).tokens));
}

TEST_F(PlantedFault, a_draft_accepted_that_is_not_the_targets_draw_is_another_output) {
  for (const int nth : {1, 2, 5})
    EXPECT_NE(tokens_with("sim_runner.accept", nth, request()),
              ids_of(expected_output(request(), 0, {}, kFaultsVocabSize).tokens));
}

TEST_F(PlantedFault, a_token_shown_behind_an_end_is_another_output) {
  const core::RequestOutput plain = expected_output(request(), 0, {}, kFaultsVocabSize);
  int num_noticed = 0;
  for (size_t end = 1; end < plain.tokens.size(); ++end) {
    core::Request stopped = request();
    stopped.sampling.stop_token_ids = {plain.tokens[end].token};
    const core::RequestOutput want = expected_output(stopped, 0, {}, kFaultsVocabSize);
    const std::vector<int32_t> got = tokens_with("step_loop.behind_end", 1, stopped);
    // An end that no accepted token follows gives the fault no chance.
    if (got == ids_of(want.tokens)) continue;
    EXPECT_GT(got.size(), want.tokens.size());
    ++num_noticed;
  }
  EXPECT_GT(num_noticed, 5);
}

// Leaves the rows of a rejected branch where those of the accepted one belong, publishes them and hands them to
// the next request.
void publish_a_rejected_row(const runner::SimConfig& sim, const core::Request& request, int nth) {
  runner::SimRunner runner(sim);
  StepLoop loop(runner, {.overlap = false, .speculation = {.enabled = true}});
  Recorder recorder(loop);
  ASSERT_TRUE(loop.add(request));
  arm_failpoint("sim_runner.compact", nth);
  recorder.step();
  while (recorder.step() && loop.stats().num_output_tokens < 12) {
  }
  loop.cancel(0);
  recorder.run();
  core::Request next = request;
  next.id = 1;
  const std::vector<int32_t>& shown = recorder.streamed.at(0);
  next.prompt.insert(next.prompt.end(), shown.begin(), shown.end());
  ASSERT_TRUE(loop.add(next));
  recorder.run();
}

TEST_F(PlantedFault, a_rejected_row_that_is_published_aborts_whoever_shares_it) {
  // Whichever check comes first: the drafter's row beside it, or the next request's prefix.
  EXPECT_DEATH(publish_a_rejected_row(sim(), request(), 1),
               "cached row .* of slot .* holds token|the drafter's row .* holds token");
  publish_a_rejected_row(sim(), request(), 1'000'000);  // without the fault nobody aborts
}

}  // namespace
}  // namespace fathom::engine
