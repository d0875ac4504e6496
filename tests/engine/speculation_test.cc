// Steps that yield several tokens of a request: the output is that of plain decoding, ends in the middle of an
// accepted run are ends, and the counters say what happened.

#include "engine/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/failpoint.h"
#include "base/startup_error.h"
#include "tests/engine/sim_scenario.h"
#include "tests/engine/toy_constraint.h"

namespace fathom::engine {
namespace {

using ::testing::ElementsAre;
using testing::expected_output;
using testing::ids_of;
using testing::Recorder;
using testing::ToyConstraint;

constexpr int kSpeculationVocabSize = 500;

runner::SimDrafterConfig chain(int num_steps, double agreement) {
  return {.shape = {.num_steps = num_steps, .top_k = 1, .num_draft_tokens = num_steps + 1},
          .agreement = agreement};
}

runner::SimDrafterConfig tree(double agreement) {
  return {.shape = {.num_steps = 3, .top_k = 3, .num_draft_tokens = 9}, .agreement = agreement};
}

runner::SimConfig sim_with(const runner::SimDrafterConfig& drafter) {
  return {.vocab_size = kSpeculationVocabSize,
          .num_blocks = 100,
          .block_tokens = 4,
          .drafter = drafter};
}

StepLoopConfig speculating(bool overlap) {
  return {.overlap = overlap, .speculation = {.enabled = true}};
}

core::Request request_of(core::RequestId id, int max_new_tokens) {
  core::Request request{.id = id, .prompt = {1, 2, 3, 4, static_cast<int32_t>(10 + id)}};
  request.sampling.temperature = id % 2 == 0 ? 0.0f : 1.0f;
  request.sampling.seed = 7;
  request.sampling.max_new_tokens = max_new_tokens;
  return request;
}

core::Request twin_of(const core::Request& request) {
  core::Request copy = request;
  if (copy.constraint != nullptr) copy.constraint = copy.constraint->clone();
  return copy;
}

struct RunOutcome {
  std::map<core::RequestId, core::RequestOutput> finished;
  StepLoopStats stats;
};

// Runs the requests to their ends and compares each with the oracle.
RunOutcome run_as_alone(const std::vector<core::Request>& requests, const runner::SimConfig& sim,
                        const StepLoopConfig& config, int retract_every = 0) {
  runner::SimRunner runner(sim);
  StepLoop loop(runner, config);
  Recorder recorder(loop);
  for (const core::Request& request : requests) EXPECT_TRUE(loop.add(twin_of(request)));
  bool busy = true;
  for (int i = 1; busy; ++i) {
    if (retract_every > 0 && i % retract_every == 0) arm_failpoint("scheduler.retract", 1);
    busy = recorder.step();
    EXPECT_EQ(loop.check_integrity(), "");
    if (::testing::Test::HasFailure()) break;
  }
  disarm_failpoints();
  for (const core::Request& request : requests) {
    const core::RequestOutput& got = recorder.finished.at(request.id);
    const core::RequestOutput want =
        expected_output(request, got.seed, config.eos_token_ids, kSpeculationVocabSize);
    EXPECT_EQ(ids_of(got.tokens), ids_of(want.tokens)) << "request " << request.id;
    EXPECT_EQ(got.finish_reason, want.finish_reason) << "request " << request.id;
  }
  testing::expect_everything_returned(loop, runner.info());
  return {.finished = recorder.finished, .stats = loop.stats()};
}

TEST(Speculation, gives_the_tokens_of_plain_decoding_at_every_agreement) {
  std::vector<core::Request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(request_of(i, 20 + 7 * i));
  for (const double agreement : {0.0, 0.3, 0.7, 0.94, 1.0})
    for (const auto& drafter : {chain(3, agreement), tree(agreement)})
      for (const bool overlap : {false, true})
        for (const int retract_every : {0, 3}) {
          const RunOutcome run =
              run_as_alone(requests, sim_with(drafter), speculating(overlap), retract_every);
          EXPECT_EQ(run.stats.num_drafts_accepted > 0, agreement > 0);
          EXPECT_EQ(run.stats.num_retractions > 0, retract_every > 0);
          EXPECT_GT(run.stats.num_drafts_verified, 0);
        }
}

TEST(Speculation, a_drafter_that_is_always_right_saves_its_share_of_the_steps) {
  // One token from the prefill, then four a step; the last step is the release.
  const RunOutcome run =
      run_as_alone({request_of(0, 13)}, sim_with(chain(3, 1)), speculating(false));
  EXPECT_EQ(run.stats.num_steps, 1 + 3 + 1);
  EXPECT_EQ(run.stats.num_wasted_tokens, 0);
  const core::SpeculationCounts& counts = run.finished.at(0).speculation;
  EXPECT_EQ(counts.num_verify_steps, 3);
  EXPECT_EQ(counts.num_drafts_verified, 9);
  EXPECT_EQ(counts.num_drafts_accepted, 9);
  EXPECT_THAT(counts.accept_histogram, ElementsAre(0, 0, 0, 3));
  EXPECT_EQ(counts.accept_length(), 4);
  EXPECT_EQ(run.stats.num_verify_slices, 3);
  EXPECT_EQ(run.stats.num_drafts_accepted, 9);
}

TEST(Speculation, never_passes_max_new_tokens_nor_computes_in_vain_for_it) {
  for (const bool overlap : {false, true})
    for (int max_new_tokens = 0; max_new_tokens < 15; ++max_new_tokens)
      for (const auto& drafter : {chain(4, 1), tree(1)}) {
        // The device drops what lies behind the limit of the rows, also in a step that nobody needed.
        const RunOutcome run =
            run_as_alone({request_of(0, max_new_tokens)}, sim_with(drafter), speculating(overlap));
        EXPECT_EQ(run.stats.num_wasted_tokens, 0) << max_new_tokens;
      }
}

TEST(Speculation, a_stop_token_inside_an_accepted_run_ends_the_request_there) {
  for (const bool overlap : {false, true})
    for (int stop_at = 1; stop_at <= 9; ++stop_at) {
      core::Request request = request_of(0, 60);
      const core::RequestOutput plain = expected_output(request, 0, {}, kSpeculationVocabSize);
      request.sampling.stop_token_ids = {plain.tokens[static_cast<size_t>(stop_at) - 1].token};
      const RunOutcome run = run_as_alone({request}, sim_with(chain(3, 1)), speculating(overlap));
      const core::RequestOutput& output = run.finished.at(0);
      ASSERT_LE(output.tokens.size(), static_cast<size_t>(stop_at));
      EXPECT_EQ(output.matched_stop_token, request.sampling.stop_token_ids[0]);
      // The first token comes from the prefill, then four a step, the fourth of which is no draft.
      const auto num_shown = static_cast<int64_t>(output.tokens.size());
      EXPECT_EQ(output.speculation.num_drafts_accepted, (num_shown - 1) - (num_shown - 1) / 4);
      EXPECT_EQ(run.stats.num_output_tokens, num_shown);
      if (!overlap) {
        EXPECT_EQ(run.stats.num_wasted_tokens, (4 - (num_shown - 1) % 4) % 4);
      }
    }
}

TEST(Speculation, what_lies_behind_an_end_is_not_published) {
  core::Request request = request_of(0, 60);
  const core::RequestOutput plain = expected_output(request, 0, {}, kSpeculationVocabSize);
  request.sampling.stop_token_ids = {plain.tokens[2].token};
  runner::SimRunner runner(sim_with(chain(5, 1)));
  StepLoop loop(runner, speculating(false));
  Recorder recorder(loop);
  ASSERT_TRUE(loop.add(request));
  recorder.run();
  // Five tokens of prompt and three are known. The drafter's row of the last one needs what follows.
  EXPECT_EQ(recorder.finished.at(0).tokens.size(), 3u);
  EXPECT_EQ(loop.scheduler().kv_usage().num_cached, 1);
}

TEST(Speculation, min_new_tokens_and_log_probabilities_are_those_of_plain_decoding) {
  std::vector<core::Request> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(request_of(i, 40));
    core::SamplingParams& sampling = requests.back().sampling;
    sampling.min_new_tokens = 17;
    sampling.return_logprobs = sampling.return_prompt_logprobs = true;
    sampling.num_top_logprobs = 2;
    for (int32_t token = i; token < kSpeculationVocabSize; token += 10)
      sampling.stop_token_ids.push_back(token);
  }
  const RunOutcome plain = run_as_alone(requests, {.vocab_size = kSpeculationVocabSize}, {});
  for (const auto& drafter : {chain(3, 0.9), tree(0.9)}) {
    const RunOutcome run = run_as_alone(requests, sim_with(drafter), speculating(true));
    EXPECT_GT(run.stats.num_drafts_accepted, 0);
    for (const auto& [id, output] : run.finished) {
      const core::RequestOutput& want = plain.finished.at(id);
      ASSERT_EQ(output.tokens.size(), want.tokens.size());
      EXPECT_EQ(output.prompt_logprobs.size(), want.prompt_logprobs.size());
      for (size_t i = 0; i < want.tokens.size(); ++i) {
        EXPECT_EQ(output.tokens[i].logprob, want.tokens[i].logprob);
        EXPECT_EQ(output.tokens[i].top_logprobs, want.tokens[i].top_logprobs);
      }
    }
  }
}

TEST(Speculation, constrained_requests_accept_drafts_under_the_mask_of_their_path) {
  std::vector<core::Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(request_of(i, 40));
    if (i % 4 == 0) continue;
    requests.back().constraint =
        std::make_shared<ToyConstraint>(ToyConstraint::Rule{.vocab_size = kSpeculationVocabSize,
                                                            .divisor = 1 + i % 3,
                                                            .min_tokens = 3,
                                                            .eos_token_ids = {7}});
  }
  for (const auto& drafter : {chain(3, 1), tree(0.8)})
    for (const bool overlap : {false, true}) {
      StepLoopConfig config = speculating(overlap);
      config.eos_token_ids = {7};
      const RunOutcome run = run_as_alone(requests, sim_with(drafter), config, 5);
      int64_t num_accepted = 0;
      for (const auto& [id, output] : run.finished)
        if (id % 3 == 2) num_accepted += output.speculation.num_drafts_accepted;
      EXPECT_GT(num_accepted, 0) << "under a mask that forbids most tokens";
    }
}

// Allows some tokens, then nothing.
class OnlyDeadEnd : public core::TokenConstraint {
 public:
  explicit OnlyDeadEnd(int length) : length_(length) {}
  void fill_mask(std::span<uint64_t> words) override {
    for (uint64_t& word : words) word = num_tokens_ < length_ ? ~uint64_t{0} : 0;
  }
  bool accept(int32_t) override { return ++num_tokens_ <= length_; }
  std::unique_ptr<core::TokenConstraint> clone() const override {
    return std::make_unique<OnlyDeadEnd>(*this);
  }

 private:
  int length_, num_tokens_ = 0;
};

TEST(Speculation, a_dead_end_of_a_grammar_fails_its_request_after_the_same_tokens) {
  for (const bool overlap : {false, true})
    for (int length = 1; length <= 9; ++length) {
      runner::SimRunner runner(sim_with(chain(3, 1)));
      StepLoop loop(runner, speculating(overlap));
      Recorder recorder(loop);
      core::Request request = request_of(0, 60);
      const core::RequestOutput plain = expected_output(request, 0, {}, kSpeculationVocabSize);
      request.constraint = std::make_shared<OnlyDeadEnd>(length);
      ASSERT_TRUE(loop.add(std::move(request)));
      recorder.run();
      const core::RequestOutput& output = recorder.finished.at(0);
      EXPECT_EQ(output.finish_reason, core::FinishReason::kFailed);
      EXPECT_THAT(output.error, ::testing::HasSubstr("no token of the vocabulary"));
      std::vector<int32_t> want = ids_of(plain.tokens);
      want.resize(static_cast<size_t>(length));
      EXPECT_EQ(ids_of(output.tokens), want);
    }
}

TEST(Speculation, a_cached_block_serves_only_who_goes_on_with_the_same_token) {
  // Blocks of four tokens: the drafter's row of the fourth depends on the fifth.
  runner::SimRunner runner(sim_with(chain(2, 0.9)));
  StepLoop loop(runner, speculating(true));
  Recorder recorder(loop);
  const std::vector<std::vector<int32_t>> prompts = {
      {1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 9}, {1, 2, 3, 4, 5, 6, 7, 8, 10}};
  const std::vector<int> cached = {0, 8, 4};
  for (core::RequestId id = 0; id < 3; ++id) {
    core::Request request = request_of(id, 20);
    request.prompt = prompts[static_cast<size_t>(id)];
    ASSERT_TRUE(loop.add(request));
    recorder.run();
    EXPECT_EQ(recorder.finished.at(id).num_cached_tokens, cached[static_cast<size_t>(id)]);
    EXPECT_EQ(
        ids_of(recorder.finished.at(id).tokens),
        ids_of(expected_output(request, id % 2 == 0 ? 0 : 7, {}, kSpeculationVocabSize).tokens));
  }
}

TEST(Speculation, depth_changes_from_step_to_step) {
  runner::SimRunner runner(sim_with(chain(4, 1)));
  StepLoop loop(runner, speculating(true));
  Recorder recorder(loop);
  const core::Request request = request_of(0, 80);
  ASSERT_TRUE(loop.add(request));
  int64_t num_before = 0;
  std::vector<int64_t> gains;
  for (int i = 0; recorder.step(); ++i) {
    if (i % 6 == 5) loop.set_num_drafts(i % 12 == 5 ? 0 : 2);
    gains.push_back(loop.stats().num_output_tokens - num_before);
    num_before = loop.stats().num_output_tokens;
  }
  EXPECT_EQ(ids_of(recorder.finished.at(0).tokens),
            ids_of(expected_output(request, 0, {}, kSpeculationVocabSize).tokens));
  EXPECT_EQ(gains.at(3), 5);
  EXPECT_EQ(gains.at(10), 1);
  EXPECT_EQ(gains.at(16), 3);
}

TEST(Speculation, an_adaptive_depth_changes_steps_but_no_token) {
  std::vector<core::Request> requests;
  for (int id = 0; id < 40; ++id) requests.push_back(request_of(id, 60));
  StepLoopConfig config = speculating(true);
  config.speculation.adaptive = true;
  // Nothing is measured here, so the rows of a step decide: few sequences draft deep, 40 not at all.
  for (const runner::SimDrafterConfig& drafter : {chain(3, 0.9), tree(0.9)}) {
    runner::SimConfig sim = sim_with(drafter);
    sim.num_blocks = 2000;
    sim.max_slots = 40;
    const RunOutcome few = run_as_alone({requests[0], requests[1]}, sim, config);
    EXPECT_GT(few.stats.num_drafts_accepted, few.stats.num_verify_slices);
    const RunOutcome many = run_as_alone(requests, sim, config);
    EXPECT_LT(many.stats.num_verify_slices, 40);
  }
}

TEST(Speculation, a_pause_takes_nothing_from_a_look_at_another_depth) {
  constexpr int kSteps = 300;  // the first look begins at step 257 and takes a few
  const auto depths = [](int paused_at) {
    runner::SimConfig sim = sim_with(chain(3, 0.9));
    sim.num_blocks = 1000;
    runner::SimRunner runner(sim);
    StepLoopConfig config = speculating(false);
    config.speculation.adaptive = true;
    StepLoop loop(runner, config);
    Recorder recorder(loop);
    EXPECT_TRUE(loop.add(request_of(0, 2000)));
    std::vector<int> asked;
    for (int step = 0; step < kSteps; ++step) {
      if (step == paused_at) {
        loop.pause(sched::Scheduler::Pause::kKeepRunning);
        for (int turn = 0; turn < 100; ++turn) recorder.step();
        loop.resume();
      }
      recorder.step();
      asked.push_back(loop.num_drafts());
    }
    return asked;
  };
  const std::vector<int> plain = depths(-1);
  const auto look = std::find(std::find(plain.begin(), plain.end(), 3), plain.end(), 0);
  ASSERT_NE(look, plain.end());
  EXPECT_EQ(depths(100), plain);
  EXPECT_EQ(depths(static_cast<int>(look - plain.begin()) + 1), plain) << "in the midst of it";
}

TEST(Speculation, retracts_for_blocks_but_not_for_drafts) {
  std::vector<core::Request> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(request_of(i, 30));
  runner::SimConfig sim = sim_with(tree(0.7));
  sim.num_blocks = 20;
  const RunOutcome run = run_as_alone(requests, sim, speculating(true));
  EXPECT_GT(run.stats.num_retractions, 0);
  // One alone fills the pool with its last row.
  sim.num_blocks = 9;
  const RunOutcome alone = run_as_alone({request_of(0, 31)}, sim, speculating(true));
  EXPECT_EQ(alone.stats.num_retractions, 0);
}

TEST(Speculation, refuses_what_the_drafter_cannot) {
  const auto message = [](const runner::SimConfig& sim, const SpeculationConfig& speculation) {
    runner::SimRunner runner(sim);
    try {
      const StepLoop loop(runner, {.speculation = speculation});
      return "up to " + std::to_string(loop.max_drafts());
    } catch (const StartupError& error) {
      return std::string(error.what());
    }
  };
  const runner::SimConfig none{.vocab_size = kSpeculationVocabSize};
  EXPECT_EQ(message(none, {}), "up to 0");
  EXPECT_EQ(message(none, {.enabled = true}), "speculation is on, the runner has no drafter");
  const runner::SimConfig three = sim_with(chain(3, 1)), wide = sim_with(tree(1));
  EXPECT_EQ(message(three, {}), "up to 0");
  EXPECT_EQ(message(three, {.enabled = true}), "up to 3");
  EXPECT_EQ(message(three, {.enabled = true, .num_steps = 2}), "up to 2");
  EXPECT_EQ(message(three, {.enabled = true, .num_steps = 4}),
            "speculative num_steps is 4, must be in [1, 3], what the drafter has");
  EXPECT_EQ(message(three, {.enabled = true, .top_k = 2}),
            "speculative top_k is 2, must be in [1, 1], what the drafter has");
  EXPECT_EQ(message(three, {.enabled = true, .num_steps = 2, .num_draft_tokens = 4}),
            "speculative num_draft_tokens is 4, must be in [3, 3], what the drafter has");
  EXPECT_EQ(message(wide, {.enabled = true, .num_draft_tokens = 5}), "up to 4");
  EXPECT_EQ(message(wide, {.enabled = true, .num_steps = 2}),
            "speculative num_steps is 2, must be in [3, 3], what the drafter has");
}

}  // namespace
}  // namespace fathom::engine
