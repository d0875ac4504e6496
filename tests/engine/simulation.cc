#include "tests/engine/simulation.h"

#include "base/failpoint.h"
#include "tests/engine/toy_constraint.h"

namespace fathom::engine::testing {
namespace {

// Steps in a row without a prompt token, an output token or an end: a fence, then the release.
constexpr int kMaxIdleSteps = 3;
// A retraction computes a prompt again and a chunk may be one token, so a request may cost several steps per
// token, but not more than this.
constexpr int kMaxStepsPerToken = 40;

}  // namespace

void Coverage::add(const Coverage& other) {
  num_steps += other.num_steps;
  num_requests += other.num_requests;
  num_retractions += other.num_retractions;
  num_evicted_blocks += other.num_evicted_blocks;
  num_cached_tokens += other.num_cached_tokens;
  num_wasted_tokens += other.num_wasted_tokens;
  num_cancelled += other.num_cancelled;
  num_stopped += other.num_stopped;
  num_failed += other.num_failed;
  num_masked += other.num_masked;
  num_speculative_steps += other.num_speculative_steps;
  num_adaptive_steps += other.num_adaptive_steps;
  num_depth_changes += other.num_depth_changes;
  num_copies += other.num_copies;
  num_stops_in_accepted += other.num_stops_in_accepted;
  num_verified_in_chains += other.num_verified_in_chains;
  num_accepted_in_chains += other.num_accepted_in_chains;
  num_verified_in_trees += other.num_verified_in_trees;
  num_accepted_in_trees += other.num_accepted_in_trees;
  num_accepted_under_masks += other.num_accepted_under_masks;
  num_behind_end += other.num_behind_end;
  num_lane_steps += other.num_lane_steps;
  num_idle_lane_steps += other.num_idle_lane_steps;
  num_bounded_steps += other.num_bounded_steps;
  num_cut_steps += other.num_cut_steps;
}

Simulation::Simulation(uint64_t seed, int num_lanes) : seed_(seed), random_(seed) {
  sim_.vocab_size = pick(5, 300);
  sim_.block_tokens = pick(1, 9);
  sim_.num_blocks = chance(4) ? pick(60, 120) : pick(4, 40);
  sim_.max_slots = pick(1, 12);
  sim_.max_batch_tokens = pick(1, 48);
  sim_.num_kv_groups = pick(1, 2);
  config_.chunked_prefill_size = pick(1, 32);
  config_.overlap = pick(0, 3) > 0;
  config_.radix_cache = pick(0, 4) > 0;
  config_.schedule_policy = chance(3) ? sched::SchedulePolicy::kFcfs : sched::SchedulePolicy::kLpm;
  config_.random_seed = seed;
  if (chance(2)) config_.eos_token_ids = {pick(0, sim_.vocab_size - 1)};
  injects_failures_ = chance(4);
  retract_one_in_ = chance(3) ? pick(3, 30) : 0;
  arrival_gap_ = pick(0, 8);
  for (int i = pick(1, 4); i > 0; --i)
    prefixes_.push_back(random_tokens(std::max(1, pick(0, 6) * sim_.block_tokens + pick(-1, 1))));
  if (chance(3)) num_lanes_ = chance(10) ? 64 : pick(2, 8);
  if (num_lanes > 0) {
    num_lanes_ = num_lanes;
    crowd_ = std::max(1, num_lanes / 4);
    arrival_gap_ /= crowd_;
  }
  if (!chance(4)) choose_drafter();
  if (chance(3)) bound_steps();
  if (chance(2)) fan_outs_ = pick(1, 6);
  if (chance(2)) num_owners_ = pick(2, 4);
}

void Simulation::bound_steps() {
  sim_.cost = {.step_us = 10.0 * pick(1, 50),
               .prompt_step_us = 10.0 * pick(0, 50),
               .noise = 0.1 * pick(0, 5),
               .hiccup_one_in = chance(2) ? pick(5, 50) : 0,
               .seed = seed_};
  // From less than a token takes to more than any step.
  constexpr double kBounds[] = {1e-6, 1e-4, 1e-3, 1e-2, 1};
  config_.max_step_seconds = kBounds[pick(0, 4)];
}

void Simulation::choose_drafter() {
  const bool is_tree = chance(2);
  const int num_steps = pick(1, 5);
  sim_.drafter.shape = {.num_steps = num_steps,
                        .top_k = is_tree ? pick(2, std::min(4, sim_.vocab_size - 1)) : 1,
                        .num_draft_tokens = is_tree ? pick(2, 12) : num_steps + 1};
  constexpr double kAgreements[] = {0, 0.3, 0.7, 0.94, 1};
  sim_.drafter.agreement = kAgreements[pick(0, 4)];
  sim_.drafter.seed = seed_;
  // A drafter that nobody asks still keeps its rows.
  config_.speculation.enabled = !chance(8);
  config_.speculation.adaptive = config_.speculation.enabled && chance(4);
  varies_depth_ = config_.speculation.enabled && !config_.speculation.adaptive && chance(3);
}

std::vector<int32_t> Simulation::random_tokens(int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(pick(0, sim_.vocab_size - 1));
  return tokens;
}

std::vector<int32_t> Simulation::random_prompt(int max_tokens) {
  // As the choices of one request: the same prompt, at the same time or a little later.
  if (!requests_.empty() && chance(12)) {
    if (config_.speculation.enabled) ++coverage_.num_copies;
    return requests_.back().prompt;
  }
  // The text of an earlier request again, cut or not, is a partial or a full hit.
  if (!requests_.empty() && chance(4)) {
    std::vector<int32_t> prompt =
        requests_[static_cast<size_t>(pick(0, static_cast<int>(requests_.size()) - 1))].prompt;
    prompt.resize(static_cast<size_t>(pick(1, static_cast<int>(prompt.size()))));
    return prompt;
  }
  std::vector<int32_t> prompt;
  if (!chance(3))
    prompt = prefixes_[static_cast<size_t>(pick(0, static_cast<int>(prefixes_.size()) - 1))];
  const std::vector<int32_t> rest = random_tokens(
      chance(2) ? pick(1, 24) : std::max(1, pick(0, 4) * sim_.block_tokens + pick(-1, 1)));
  prompt.insert(prompt.end(), rest.begin(), rest.end());
  if (static_cast<int>(prompt.size()) > max_tokens) prompt.resize(static_cast<size_t>(max_tokens));
  return prompt;
}

core::Request Simulation::random_request(core::RequestId id) {
  const int capacity = sim_.num_blocks * sim_.block_tokens;
  core::Request request{.id = id, .prompt = random_prompt(std::min(capacity, 80))};
  core::SamplingParams& sampling = request.sampling;
  const int room = capacity - static_cast<int>(request.prompt.size());
  sampling.max_new_tokens = pick(0, std::min(room, chance(4) ? 90 : 25));
  sampling.min_new_tokens = chance(4) ? pick(0, sampling.max_new_tokens) : 0;
  sampling.temperature = chance(2) ? 0.0f : 0.7f;
  sampling.ignore_eos = chance(5);
  if (chance(4)) sampling.stop_token_ids = random_tokens(1);
  if (chance(3)) sampling.seed = static_cast<uint64_t>(pick(0, 1000));
  sampling.return_prompt_logprobs = chance(8);
  request.priority = chance(4) ? pick(-1, 1) : 0;
  // All of a run, some of it in bodies, or each alone.
  if (fan_outs_ > 0 && !chance(4)) {
    request.fan_out = pick(1, fan_outs_);
    request.priority = static_cast<int>(request.fan_out % 3) - 1;
  }
  request.owner = static_cast<uint64_t>(pick(1, num_owners_));
  if (chance(5)) request.cache_salt = chance(2) ? "a" : "b";
  if (chance(6))
    request.constraint = std::make_shared<ToyConstraint>(
        ToyConstraint::Rule{.vocab_size = sim_.vocab_size,
                            .divisor = pick(2, 4),
                            .min_tokens = pick(0, 4),
                            .eos_token_ids = config_.eos_token_ids});
  return request;
}

void Simulation::add_request(StepLoop& loop) {
  core::Request request = random_request(static_cast<core::RequestId>(requests_.size()));
  requests_.push_back(request);
  work_tokens_ += static_cast<int64_t>(request.prompt.size()) + request.sampling.max_new_tokens + 1;
  if (request.constraint != nullptr) {
    request.constraint = request.constraint->clone();
    ++coverage_.num_masked;
  }
  const Status added = loop.add(std::move(request));
  ASSERT_TRUE(added) << added.error().message;
}

void Simulation::disturb(StepLoop& loop) {
  if (retract_one_in_ > 0 && chance(retract_one_in_)) arm_failpoint("scheduler.retract", 1);
  if (injects_failures_ && chance(200)) arm_failpoint("sim_runner.slice", pick(1, 10));
  if (varies_depth_ && chance(5)) loop.set_num_drafts(pick(0, loop.max_drafts()));
  if (!requests_.empty() && chance(20))
    loop.set_gives_way(pick(0, static_cast<int>(requests_.size()) - 1), chance(2));
  if (requests_.empty() || !chance(60)) return;
  const auto id = static_cast<core::RequestId>(pick(0, static_cast<int>(requests_.size()) - 1));
  const bool stop = chance(2);
  const auto reason = stop ? core::FinishReason::kStop : core::FinishReason::kCancelled;
  // The first call counts; a request that has ended does not notice.
  ended_from_outside_.emplace(id, reason);
  if (stop) {
    loop.stop(id);
  } else {
    loop.cancel(id);
  }
}

void Simulation::run() {
  SCOPED_TRACE("replay: FATHOM_SIMULATION_SEED=" + std::to_string(seed_) +
               " build/release/tests/test_engine --gtest_filter='*replays_the_seed*'");
  disarm_failpoints();
  if (fault_ != nullptr) arm_failpoint(fault_, fault_chance_);
  const std::unique_ptr<runner::Runner> runner = make_runner();
  StepLoop loop(*runner, config_);
  Recorder recorder(loop);
  const int num_requests = pick(1, 150) * crowd_;
  bool busy = false;
  while (busy || static_cast<int>(requests_.size()) < num_requests) {
    while (static_cast<int>(requests_.size()) < num_requests &&
           (!busy || arrival_gap_ == 0 || pick(0, arrival_gap_) == 0)) {
      add_request(loop);
      busy = true;
    }
    disturb(loop);
    busy = recorder.step();
    count_step(loop, recorder);
    if (num_lanes_ > 1) count_lanes(loop);
    if (!check_step(loop, recorder)) return;
  }
  // A fault that is still armed happens now, on its first chance.
  fault_happened_ = fault_ != nullptr && fault_chance_ == 1 && !failpoint(fault_);
  disarm_failpoints();
  check_outputs(recorder);
  expect_everything_returned(loop, runner->info());
  check_end(loop);
}

std::unique_ptr<runner::Runner> Simulation::make_runner() {
  if (num_lanes_ == 1) return std::make_unique<runner::SimRunner>(sim_);
  collectives_ = std::make_unique<runner::SimCollectives>(num_lanes_);
  std::vector<std::unique_ptr<runner::Runner>> lanes;
  for (int lane = 0; lane < num_lanes_; ++lane) {
    runner::SimConfig config = sim_;
    config.collectives = collectives_.get();
    config.lane = lane;
    config.cost.seed += static_cast<uint64_t>(lane);  // each is held up at another time
    lanes.push_back(std::make_unique<runner::SimRunner>(config));
  }
  return std::make_unique<runner::RankedRunner>(std::move(lanes), num_lanes_);
}

void Simulation::count_lanes(const StepLoop& loop) {
  const bool is_busy = loop.num_running() > 0;
  for (const sched::Lane& lane : loop.scheduler().lanes()) {
    coverage_.num_lane_steps += 1;
    coverage_.num_idle_lane_steps += is_busy && lane.running.empty() ? 1 : 0;
  }
}

void Simulation::count_step(const StepLoop& loop, const Recorder& recorder) {
  ++coverage_.num_steps;
  if (config_.speculation.enabled) ++coverage_.num_speculative_steps;
  if (config_.speculation.adaptive) {
    ++coverage_.num_adaptive_steps;
    if (last_depth_ >= 0 && loop.num_drafts() != last_depth_) ++coverage_.num_depth_changes;
    last_depth_ = loop.num_drafts();
  }
  const int64_t num_wasted = loop.stats().num_wasted_tokens;
  if (!config_.overlap && num_wasted > last_wasted_)
    coverage_.num_stops_in_accepted += recorder.num_stop_token_ends - last_stop_ends_;
  last_wasted_ = num_wasted;
  last_stop_ends_ = recorder.num_stop_token_ends;
}

bool Simulation::check_step(const StepLoop& loop, const Recorder& recorder) {
  const std::string problem = loop.check_integrity();
  EXPECT_EQ(problem, "") << "after step " << coverage_.num_steps;
  const StepLoopStats stats = loop.stats();
  const int64_t progress = stats.num_prefill_tokens + stats.num_output_tokens +
                           static_cast<int64_t>(recorder.finished.size());
  num_idle_steps_ = progress > last_progress_ || loop.num_live() == 0 ? 0 : num_idle_steps_ + 1;
  last_progress_ = progress;
  EXPECT_LE(num_idle_steps_, kMaxIdleSteps)
      << "step " << coverage_.num_steps << ": " << loop.num_running() << " running, "
      << loop.num_waiting() << " waiting";
  EXPECT_LE(coverage_.num_steps, kMaxStepsPerToken * work_tokens_) << "requests do not end";
  return !::testing::Test::HasFailure();
}

void Simulation::check_outputs(const Recorder& recorder) {
  ASSERT_EQ(recorder.finished.size(), requests_.size());
  int64_t num_cached_tokens = 0;
  for (const core::Request& request : requests_) {
    const core::RequestOutput& got = recorder.finished.at(request.id);
    SCOPED_TRACE("request " + std::to_string(request.id));
    check_output(request, got);
    num_cached_tokens += got.num_cached_tokens;
    coverage_.num_retractions += got.num_retractions;
    coverage_.num_failed += got.finish_reason == core::FinishReason::kFailed ? 1 : 0;
  }
  coverage_.num_requests = static_cast<int64_t>(requests_.size());
  coverage_.num_cached_tokens = num_cached_tokens;
}

void Simulation::check_output(const core::Request& request, const core::RequestOutput& got) {
  const core::RequestOutput want =
      expected_output(request, got.seed, config_.eos_token_ids, sim_.vocab_size);
  std::vector<int32_t> tokens = ids_of(want.tokens);
  const bool injected = got.finish_reason == core::FinishReason::kFailed && injects_failures_ &&
                        got.error.find("injected") != std::string::npos;
  const auto outside = ended_from_outside_.find(request.id);
  const bool cut = outside != ended_from_outside_.end() && got.matched_stop_token < 0 &&
                   got.finish_reason == outside->second;
  if (injected || cut) {
    ASSERT_LE(got.tokens.size(), tokens.size());
    tokens.resize(got.tokens.size());
    (got.finish_reason == core::FinishReason::kStop ? coverage_.num_stopped
                                                    : coverage_.num_cancelled) += cut ? 1 : 0;
  } else {
    EXPECT_EQ(got.finish_reason, want.finish_reason);
    if (want.finish_reason != core::FinishReason::kFailed) {
      EXPECT_EQ(got.prompt_logprobs.size(),
                request.sampling.return_prompt_logprobs ? request.prompt.size() - 1 : 0u);
    }
  }
  EXPECT_EQ(ids_of(got.tokens), tokens);
  check_counts(request, got);
  EXPECT_EQ(got.num_cached_tokens % sim_.block_tokens, 0);
  EXPECT_LT(got.num_cached_tokens, static_cast<int>(request.prompt.size()));
  if (!config_.radix_cache || request.sampling.return_prompt_logprobs) {
    EXPECT_EQ(got.num_cached_tokens, 0);
  }
}

void Simulation::check_counts(const core::Request& request, const core::RequestOutput& got) {
  const core::SpeculationCounts& counts = got.speculation;
  int64_t num_steps = 0, num_accepted = 0;
  for (size_t n = 0; n < counts.accept_histogram.size(); ++n) {
    num_steps += counts.accept_histogram[n];
    num_accepted += static_cast<int64_t>(n) * counts.accept_histogram[n];
  }
  EXPECT_EQ(num_steps, counts.num_verify_steps);
  EXPECT_EQ(num_accepted, counts.num_drafts_accepted);
  EXPECT_LE(counts.num_drafts_accepted, counts.num_drafts_verified);
  EXPECT_LE(counts.num_drafts_verified, counts.num_drafts_proposed);
  // A prefill's token is no draft, nor is the one after the accepted ones.
  EXPECT_LE(counts.num_drafts_accepted, static_cast<int64_t>(got.tokens.size()));
  if (!config_.speculation.enabled) {
    EXPECT_EQ(counts.num_drafts_proposed, 0);
  }
  const bool is_tree = sim_.drafter.shape.top_k > 1;
  (is_tree ? coverage_.num_verified_in_trees : coverage_.num_verified_in_chains) +=
      counts.num_drafts_verified;
  (is_tree ? coverage_.num_accepted_in_trees : coverage_.num_accepted_in_chains) += num_accepted;
  if (request.constraint != nullptr) coverage_.num_accepted_under_masks += num_accepted;
}

void Simulation::check_end(StepLoop& loop) {
  const StepLoopStats stats = loop.stats();
  EXPECT_EQ(stats.num_cached_tokens, coverage_.num_cached_tokens);
  EXPECT_EQ(stats.num_retractions, coverage_.num_retractions);
  coverage_.num_evicted_blocks = stats.num_evicted_blocks;
  coverage_.num_wasted_tokens = stats.num_wasted_tokens;
  if (!config_.overlap) coverage_.num_behind_end = stats.num_wasted_tokens;
  coverage_.num_bounded_steps = stats.step_time.num_steps;
  coverage_.num_cut_steps = stats.step_time.num_cut;
  EXPECT_EQ(stats.num_drafts_accepted,
            coverage_.num_accepted_in_chains + coverage_.num_accepted_in_trees);
  EXPECT_EQ(stats.num_drafts_verified,
            coverage_.num_verified_in_chains + coverage_.num_verified_in_trees);
  EXPECT_TRUE(loop.flush_cache());
  for (int lane = 0; lane < num_lanes_; ++lane)
    EXPECT_EQ(loop.scheduler().pool(0, lane).num_free(), sim_.num_blocks);
  EXPECT_EQ(loop.check_integrity(), "");
}

}  // namespace fathom::engine::testing
