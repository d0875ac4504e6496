#pragma once
// One seeded run of random traffic over the simulated runner, with every invariant checked after every step.
//
//   Simulation simulation(seed);
//   simulation.run();                       // GoogleTest failures carry the seed and how to replay it
//   total_steps += simulation.coverage().num_steps;
//
// The seed decides everything: pool, blocks, chunks, policy, radix, overlap, speculation; arrivals, shared
// prefixes whose lengths lie at block edges, priorities, salts, constraints, cancellations, stops, failpoints,
// how deep to draft, what steps cost and the bound on their time.

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "runner/ranks/ranked_runner.h"
#include "tests/engine/sim_scenario.h"

namespace fathom::engine::testing {

// What a run has met; a suite of runs checks that nothing is missing.
struct Coverage {
  int64_t num_steps = 0, num_requests = 0;
  int64_t num_retractions = 0, num_evicted_blocks = 0, num_cached_tokens = 0, num_wasted_tokens = 0;
  int64_t num_cancelled = 0, num_stopped = 0, num_failed = 0, num_masked = 0;
  int64_t num_speculative_steps = 0, num_adaptive_steps = 0;
  int64_t num_depth_changes = 0;  // by the loop itself
  int64_t num_verified_in_chains = 0, num_accepted_in_chains = 0;
  int64_t num_verified_in_trees = 0, num_accepted_in_trees = 0;
  int64_t num_accepted_under_masks = 0;
  int64_t num_bounded_steps = 0, num_cut_steps = 0;
  // Of runs with several lanes: steps of all lanes added up, and those of lanes that had nothing to compute while
  // another had something.
  int64_t num_lane_steps = 0, num_idle_lane_steps = 0;
  // Of the traffic of loops that draft: requests with the prompt of the one before, as the choices of n > 1 have.
  int64_t num_copies = 0;
  // Counted without overlap only, where nothing else drops a token.
  int64_t num_behind_end = 0;  // tokens dropped
  // Requests that a stop token ended before the last accepted one.
  int64_t num_stops_in_accepted = 0;
  void add(const Coverage& other);
};

class Simulation {
 public:
  // num_lanes 0: the seed decides.
  explicit Simulation(uint64_t seed, int num_lanes = 0);
  // The fault, a failpoint, happens at its nth chance.
  void plant(const char* fault, int nth) { fault_ = fault, fault_chance_ = nth; }
  void run();
  // Whether the run got as far as the planted fault.
  bool fault_happened() const { return fault_happened_; }
  const Coverage& coverage() const { return coverage_; }

 private:
  int pick(int min, int max) { return std::uniform_int_distribution<int>(min, max)(random_); }
  bool chance(int one_in) { return pick(1, one_in) == 1; }
  void choose_drafter();
  std::unique_ptr<runner::Runner> make_runner();
  void bound_steps();
  std::vector<int32_t> random_tokens(int count);
  std::vector<int32_t> random_prompt(int max_tokens);
  core::Request random_request(core::RequestId id);
  void add_request(StepLoop& loop);
  void disturb(StepLoop& loop);
  void count_step(const StepLoop& loop, const Recorder& recorder);
  void count_lanes(const StepLoop& loop);
  bool check_step(const StepLoop& loop, const Recorder& recorder);
  void check_outputs(const Recorder& recorder);
  void check_output(const core::Request& request, const core::RequestOutput& got);
  void check_counts(const core::Request& request, const core::RequestOutput& got);
  void check_end(StepLoop& loop);

  uint64_t seed_;
  std::mt19937_64 random_;
  runner::SimConfig sim_;  // of each lane
  int num_lanes_ = 1;
  int num_owners_ = 1;
  int fan_outs_ = 0;                                     // bodies of several requests
  int crowd_ = 1;                                        // times the usual number of requests
  std::unique_ptr<runner::SimCollectives> collectives_;  // of several
  StepLoopConfig config_;
  std::vector<std::vector<int32_t>> prefixes_;
  bool injects_failures_ = false, varies_depth_ = false;
  int retract_one_in_ = 0;  // plans; 0 = never
  int arrival_gap_ = 0;
  std::vector<core::Request> requests_;  // by id; with constraints that nobody uses
  std::map<core::RequestId, core::FinishReason> ended_from_outside_;
  int64_t work_tokens_ = 0;  // of all requests
  int64_t last_progress_ = 0;
  int num_idle_steps_ = 0;
  int last_depth_ = -1;
  int64_t last_wasted_ = 0, last_stop_ends_ = 0;
  const char* fault_ = nullptr;
  int fault_chance_ = 0;
  bool fault_happened_ = false;
  Coverage coverage_;
};

}  // namespace fathom::engine::testing
