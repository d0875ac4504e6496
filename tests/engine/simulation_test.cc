// A million steps of random traffic over the simulated runner, a million of them with drafts, integrity checked after
// each: every output must be the chain of hashes that the request has alone. The shards let ctest spread them over the
// cores.

#include "tests/engine/simulation.h"

#include <cstdlib>
#include <iostream>

#include "tests/sanitized.h"

namespace fathom::engine {
namespace {

using testing::Coverage;
using testing::Simulation;

constexpr int kNumShards = 10;
constexpr int64_t kSeedsPerShard = 1'000'000;  // apart
// That speculate, and at least so many in all.
constexpr int64_t kStepsPerShard = kIsSanitized ? 10'000 : 101'000;
constexpr bool kMeetsEverything = !kIsSanitized;  // enough steps for every rare case

void expect_everything_met(const Coverage& total) {
  EXPECT_GT(total.num_retractions, 100);
  EXPECT_GT(total.num_evicted_blocks, 1000);
  EXPECT_GT(total.num_cached_tokens, 1000);
  EXPECT_GT(total.num_wasted_tokens, 100);
  EXPECT_GT(total.num_cancelled, 10);
  EXPECT_GT(total.num_stopped, 10);
  EXPECT_GT(total.num_failed, 10);
  EXPECT_GT(total.num_masked, 100);
  EXPECT_GT(total.num_adaptive_steps, total.num_speculative_steps / 10);
  EXPECT_GT(total.num_depth_changes, 100);
  EXPECT_GT(total.num_steps - total.num_speculative_steps, total.num_steps / 5);
  EXPECT_GT(total.num_copies, 300);
  EXPECT_GT(total.num_stops_in_accepted, 20);
  EXPECT_GT(total.num_accepted_in_chains, 1000);
  EXPECT_GT(total.num_accepted_in_trees, 1000);
  EXPECT_GT(total.num_verified_in_chains, total.num_accepted_in_chains);
  EXPECT_GT(total.num_verified_in_trees, total.num_accepted_in_trees);
  EXPECT_GT(total.num_accepted_under_masks, 100);
  EXPECT_GT(total.num_behind_end, 0);
  EXPECT_GT(total.num_bounded_steps, total.num_steps / 10);
  EXPECT_GT(total.num_cut_steps, 1000);
  EXPECT_GT(total.num_lane_steps, total.num_steps / 2);
  EXPECT_GT(total.num_idle_lane_steps, total.num_lane_steps / 20);
}

class SimulationShard : public ::testing::TestWithParam<int> {};

TEST_P(SimulationShard, gives_every_request_the_tokens_it_gets_alone) {
  Coverage total;
  int64_t seed = GetParam() * kSeedsPerShard + 1;
  for (; total.num_speculative_steps < kStepsPerShard; ++seed) {
    Simulation simulation(static_cast<uint64_t>(seed));
    simulation.run();
    ASSERT_FALSE(HasFailure());
    total.add(simulation.coverage());
  }
  EXPECT_GT(total.num_retractions, 0);
  EXPECT_GT(total.num_evicted_blocks, 0);
  EXPECT_GT(total.num_cached_tokens, 0);
  if (kMeetsEverything) expect_everything_met(total);
  std::cout << seed - GetParam() * kSeedsPerShard - 1 << " seeds, " << total.num_steps << " steps ("
            << total.num_speculative_steps << " speculative, " << total.num_adaptive_steps
            << " of them choose their depth and changed it " << total.num_depth_changes
            << " times), " << total.num_requests << " requests: " << total.num_retractions
            << " retractions, " << total.num_evicted_blocks << " blocks evicted, "
            << total.num_cached_tokens << " tokens cached, " << total.num_wasted_tokens
            << " wasted, " << total.num_behind_end << " of them behind an end for sure, "
            << total.num_cancelled << " cancelled, " << total.num_stopped << " stopped, "
            << total.num_stops_in_accepted << " ended by a token before the last accepted one, "
            << total.num_copies << " copies of the request before, " << total.num_failed
            << " failed, " << total.num_masked
            << " masked; drafts accepted: " << total.num_accepted_in_chains << " of "
            << total.num_verified_in_chains << " in chains, " << total.num_accepted_in_trees
            << " of " << total.num_verified_in_trees << " in trees, "
            << total.num_accepted_under_masks << " under masks; " << total.num_bounded_steps
            << " steps bounded, " << total.num_cut_steps << " cut; " << total.num_lane_steps
            << " steps of lanes, " << total.num_idle_lane_steps << " of them idle\n";
}

INSTANTIATE_TEST_SUITE_P(Million, SimulationShard, ::testing::Range(0, kNumShards),
                         [](const auto& info) { return "shard_" + std::to_string(info.param); });

// With no seed given, one that no shard reaches.
TEST(SimulationSeed, replays_the_seed_given) {
  const char* const seed = std::getenv("FATHOM_SIMULATION_SEED");
  Simulation simulation(seed == nullptr ? uint64_t{kNumShards * kSeedsPerShard}
                                        : std::strtoull(seed, nullptr, 10));
  simulation.run();
}

}  // namespace
}  // namespace fathom::engine
