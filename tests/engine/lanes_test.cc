// Simulated lanes under one planner: every output is what the request has alone, whatever lane it ran in, and a lane
// that would enter another collective than the others, or none, is named. FATHOM_LANE_STEPS asks for more steps of
// lanes than a test run has time for (tools/ranks_walk.sh).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "base/failpoint.h"
#include "tests/engine/simulation.h"
#include "tests/sanitized.h"

namespace fathom::engine {
namespace {

using testing::Coverage;
using testing::Recorder;
using testing::Simulation;

int64_t lane_steps_wanted() {
  const char* const wanted = std::getenv("FATHOM_LANE_STEPS");
  return wanted != nullptr ? std::atoll(wanted) : kIsSanitized ? 5'000 : 100'000;
}

class LaneWalk : public ::testing::TestWithParam<int> {};

TEST_P(LaneWalk, gives_every_request_the_tokens_it_gets_alone) {
  Coverage total;
  int64_t seed = 20'000'000 + GetParam() * int64_t{100'000};
  for (; total.num_lane_steps < lane_steps_wanted(); ++seed) {
    Simulation simulation(static_cast<uint64_t>(seed), GetParam());
    simulation.run();
    ASSERT_FALSE(HasFailure());
    total.add(simulation.coverage());
  }
  EXPECT_GT(total.num_idle_lane_steps, total.num_lane_steps / 20);
  EXPECT_GT(total.num_cached_tokens, 0);
  EXPECT_GT(total.num_accepted_in_chains + total.num_accepted_in_trees, 0);
  if (!kIsSanitized) {
    EXPECT_GT(total.num_cancelled + total.num_stopped, 0);
    // Of 64 lanes few are ever full.
    if (GetParam() == 8) {
      EXPECT_GT(total.num_retractions, 0);
    }
  }
  std::cout << total.num_lane_steps << " steps of lanes, " << total.num_idle_lane_steps
            << " of them idle; " << total.num_requests << " requests, " << total.num_retractions
            << " retractions, " << total.num_cached_tokens << " tokens cached, "
            << total.num_cancelled + total.num_stopped << " ended from outside, "
            << total.num_accepted_in_chains + total.num_accepted_in_trees << " drafts accepted\n";
}

INSTANTIATE_TEST_SUITE_P(Lanes, LaneWalk, ::testing::Values(8, 64),
                         [](const auto& info) { return "of_" + std::to_string(info.param); });

runner::SimConfig lane_config(int lane, runner::SimCollectives& collectives) {
  return {.num_blocks = 64,
          .max_slots = 4,
          .drafter = {.shape = {.num_steps = 2, .top_k = 1, .num_draft_tokens = 3}},
          .cost = {.step_us = lane == 1 ? 900.0 : 100.0},
          .collectives = &collectives,
          .lane = lane};
}

class SimLanes {
 public:
  explicit SimLanes(int num_lanes) : collectives_(num_lanes) {
    std::vector<std::unique_ptr<runner::Runner>> lanes;
    for (int lane = 0; lane < num_lanes; ++lane)
      lanes.push_back(std::make_unique<runner::SimRunner>(lane_config(lane, collectives_)));
    runner_ = std::make_unique<runner::RankedRunner>(std::move(lanes), num_lanes);
    loop_ = std::make_unique<StepLoop>(*runner_, StepLoopConfig{.speculation = {.enabled = true}});
  }
  StepLoop& loop() { return *loop_; }
  const runner::SimCollectives& collectives() const { return collectives_; }

 private:
  runner::SimCollectives collectives_;
  std::unique_ptr<runner::RankedRunner> runner_;
  std::unique_ptr<StepLoop> loop_;
};

void add_lane_requests(StepLoop& loop, int count) {
  for (int id = 0; id < count; ++id) {
    core::Request request{.id = id, .prompt = {1 + id, 2, 3, 4}};
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = 20;
    EXPECT_TRUE(loop.add(request));
  }
}

// One lane has something to do, and all take part.
TEST(SimLanesTest, enter_the_same_collectives_with_work_or_without) {
  SimLanes lanes(4);
  Recorder recorder(lanes.loop());
  add_lane_requests(lanes.loop(), 1);
  recorder.run();
  const int64_t num_steps = lanes.loop().stats().num_steps;
  EXPECT_GT(num_steps, 5);
  // Every step but those with releases alone has a forward pass in each lane, and most draft.
  EXPECT_GE(lanes.collectives().num_entered(), 4 * 2 * (num_steps - 4));
}

TEST(SimLanesTest, take_as_long_as_the_slowest) {
  SimLanes lanes(3);
  Recorder recorder(lanes.loop());
  add_lane_requests(lanes.loop(), 6);
  recorder.run();
  const StepLoopStats stats = lanes.loop().stats();
  // The last steps release slots.
  EXPECT_GT(stats.wall_seconds, 900e-6 * static_cast<double>(stats.num_steps - 3));
}

class SimLanesDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  static void run_with(const char* failpoint, int nth) {
    SimLanes lanes(4);
    Recorder recorder(lanes.loop());
    add_lane_requests(lanes.loop(), 2);
    arm_failpoint(failpoint, nth);
    recorder.run();
  }
};

TEST_F(SimLanesDeathTest, name_a_lane_that_leaves_a_collective_out) {
  // The third of four lanes in the second step; it has nothing to compute itself.
  EXPECT_DEATH(run_with("sim_runner.collective", 7),
               "lane 2 is in nothing \\(number 3 of step 1\\), lane 0 in draft pass 1 of rows from "
               "0 1 2 2 2");
}

TEST_F(SimLanesDeathTest, name_a_lane_that_died) {
  EXPECT_DEATH(run_with("sim_runner.dies", 12), "lane 0 is in step 3, lane 3 never came to step 2");
}

}  // namespace
}  // namespace fathom::engine
