// Random traffic over the simulated runner: every output must be the chain of hashes that the request has
// alone, whatever the pool, the chunks, the strangers and the cancellations.

#include <gtest/gtest.h>

#include <random>

#include "engine/step_loop.h"
#include "tests/engine/sim_scenario.h"

namespace fathom::engine {
namespace {

using testing::expected_output;
using testing::ids_of;
using testing::Recorder;

constexpr int64_t kTotalSteps = 220'000;

class Scenario {
 public:
  explicit Scenario(uint64_t seed) : random_(seed) {
    sim_.vocab_size = pick(5, 400);
    sim_.block_tokens = pick(1, 9);
    sim_.num_blocks = pick(4, 40);
    sim_.max_slots = pick(1, 9);
    sim_.max_batch_tokens = pick(1, 40);
    sim_.num_kv_groups = pick(1, 2);
    config_.chunked_prefill_size = pick(1, 30);
    config_.overlap = pick(0, 3) > 0;
    config_.random_seed = seed;
    if (pick(0, 1) == 1) config_.eos_token_ids = {pick(0, sim_.vocab_size - 1)};
  }

  // Runs to the end; returns the number of steps.
  int64_t run() {
    runner::SimRunner runner(sim_);
    StepLoop loop(runner, config_);
    Recorder recorder(loop);
    const int num_requests = pick(1, 120);
    const int arrival_gap = pick(0, 6);
    int num_added = 0;
    bool busy = true;
    while (busy || num_added < num_requests) {
      while (num_added < num_requests && (arrival_gap == 0 || pick(0, arrival_gap) == 0 || !busy))
        add(loop, num_added++), busy = true;
      if (pick(0, 150) == 0 && num_added > 0) loop.cancel(pick(0, num_added - 1));
      busy = recorder.step();
      const std::string problem = loop.check_integrity();
      EXPECT_EQ(problem, "");
      if (!problem.empty()) return loop.stats().num_steps;
    }
    check(recorder);
    testing::expect_everything_returned(loop, runner.info());
    retractions_ = loop.stats().num_retractions;
    return loop.stats().num_steps;
  }

  int64_t retractions() const { return retractions_; }

 private:
  int pick(int min, int max) { return std::uniform_int_distribution<int>(min, max)(random_); }

  void add(StepLoop& loop, core::RequestId id) {
    const int capacity = sim_.num_blocks * sim_.block_tokens;
    const int prompt_tokens = pick(1, std::min(capacity, 60));
    core::Request request{.id = id};
    for (int i = 0; i < prompt_tokens; ++i) request.prompt.push_back(pick(0, sim_.vocab_size - 1));
    core::SamplingParams& sampling = request.sampling;
    sampling.max_new_tokens = pick(0, std::min(capacity - prompt_tokens, 60));
    sampling.min_new_tokens = pick(0, 3) == 0 ? pick(0, sampling.max_new_tokens) : 0;
    sampling.temperature = pick(0, 1) == 0 ? 0.0f : 0.7f;
    sampling.ignore_eos = pick(0, 4) == 0;
    if (pick(0, 3) == 0) sampling.stop_token_ids = {pick(0, sim_.vocab_size - 1)};
    if (pick(0, 2) == 0) sampling.seed = static_cast<uint64_t>(pick(0, 1000));
    sampling.return_prompt_logprobs = pick(0, 5) == 0;
    const Status added = loop.add(request);
    ASSERT_TRUE(added) << added.error().message;
    requests_.push_back(std::move(request));
  }

  void check(Recorder& recorder) {
    EXPECT_EQ(recorder.finished.size(), requests_.size());
    for (const core::Request& request : requests_) {
      const core::RequestOutput& got = recorder.finished[request.id];
      const core::RequestOutput want =
          expected_output(request, got.seed, config_.eos_token_ids, sim_.vocab_size);
      std::vector<int32_t> tokens = ids_of(want.tokens);
      if (got.finish_reason == core::FinishReason::kCancelled) {
        ASSERT_LE(got.tokens.size(), tokens.size());
        tokens.resize(got.tokens.size());
      } else {
        EXPECT_EQ(got.finish_reason, want.finish_reason) << "request " << request.id;
        EXPECT_EQ(got.prompt_logprobs.size(),
                  request.sampling.return_prompt_logprobs ? request.prompt.size() - 1 : 0u);
      }
      EXPECT_EQ(ids_of(got.tokens), tokens) << "request " << request.id;
    }
  }

  std::mt19937_64 random_;
  runner::SimConfig sim_;
  StepLoopConfig config_;
  std::vector<core::Request> requests_;
  int64_t retractions_ = 0;
};

TEST(RandomScenarios, every_request_gets_the_tokens_it_gets_alone) {
  int64_t num_steps = 0, num_retractions = 0;
  uint64_t seed = 1;
  for (; num_steps < kTotalSteps; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario scenario(seed);
    num_steps += scenario.run();
    num_retractions += scenario.retractions();
    ASSERT_FALSE(HasFailure());
  }
  RecordProperty("scenarios", std::to_string(seed - 1));
  RecordProperty("steps", std::to_string(num_steps));
  EXPECT_GT(num_retractions, 1000);
  std::printf("%d scenarios, %d steps, %d retractions\n", static_cast<int>(seed - 1),
              static_cast<int>(num_steps), static_cast<int>(num_retractions));
}

}  // namespace
}  // namespace fathom::engine
