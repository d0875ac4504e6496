// Faults planted in speculative decoding, and that the checks the simulation relies on notice each of them: in runs
// made for it, and in seeds of the simulation.

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "base/failpoint.h"
#include "tests/engine/sim_scenario.h"
#include "tests/engine/simulation.h"

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

// A planner that takes a slice's upper bound for what it has added.
TEST_F(PlantedFault, rows_published_up_to_the_upper_bound_are_noticed_at_once) {
  for (const bool planted : {false, true})
    for (const std::optional<uint64_t> part : {std::optional<uint64_t>(), {0}}) {
      runner::SimRunner runner(sim());
      StepLoop loop(runner, {.chunked_prefill_size = 4, .speculation = {.enabled = true}});
      Recorder recorder(loop);
      core::Request longer = request();
      longer.prompt.resize(20, 6);
      ASSERT_TRUE(loop.add(longer));
      if (planted) arm_failpoint("kv_blocks.publish", 1);
      std::string problem;
      while (problem.empty() && recorder.step()) problem = loop.check_integrity(part);
      EXPECT_EQ(problem, planted ? "slot 0 shares 8 rows, computed are 4" : "");
      disarm_failpoints();
    }
}

// In a child, since some faults abort.
enum class Outcome { kNotMet, kUnnoticed, kNoticed };
Outcome simulate_with(const char* fault, uint64_t seed) {
  const pid_t child = fork();
  if (child == 0) {
    // What the check says that aborts is expected.
    alarm(60);  // a run that does not end is noticed, too
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(9);
    ::testing::TestPartResultArray failures;
    testing::Simulation simulation(seed);
    simulation.plant(fault, 1);
    {
      const ::testing::ScopedFakeTestPartResultReporter reporter(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      simulation.run();
    }
    const Outcome outcome = failures.size() > 0           ? Outcome::kNoticed
                            : simulation.fault_happened() ? Outcome::kUnnoticed
                                                          : Outcome::kNotMet;
    _exit(static_cast<int>(outcome));
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return Outcome::kNoticed;
  EXPECT_LE(WEXITSTATUS(status), 2);
  return static_cast<Outcome>(WEXITSTATUS(status));
}

// A fault may stay without consequence: what it did was dropped, or nobody came back to the row.
TEST_F(PlantedFault, seeds_of_the_simulation_notice_each_of_them) {
  constexpr uint64_t kFirstSeed = 77'000'000, kNumSeeds = 60;  // no shard has them
  for (const char* fault :
       {"sim_runner.accept", "step_loop.behind_end", "sim_runner.compact", "kv_blocks.publish"}) {
    int num_noticed = 0, num_unnoticed = 0;
    for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kNumSeeds; ++seed) {
      const Outcome outcome = simulate_with(fault, seed);
      num_noticed += outcome == Outcome::kNoticed ? 1 : 0;
      num_unnoticed += outcome == Outcome::kUnnoticed ? 1 : 0;
    }
    std::printf("%s: %d seeds notice it, %d meet it and do not\n", fault, num_noticed,
                num_unnoticed);
    EXPECT_GE(num_noticed, 8) << fault;
  }
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kNumSeeds; ++seed)
    EXPECT_EQ(simulate_with("nowhere", seed), Outcome::kNotMet) << seed;
}

}  // namespace
}  // namespace fathom::engine
