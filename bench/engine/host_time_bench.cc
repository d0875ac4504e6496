// Host time per step: what planning and committing cost the engine's thread, over the simulated runner.
//
//   taskset -c 2 build/release/bench/bench_engine_host_time [256 [speculate [8]]]
//
// The last is a number of lanes, each of which runs so many requests; submitting includes taking a step apart.
// One JSON line per case. "decode": every sequence decodes in every step. "churn": requests of random length
// come and go, half of their prompts share a prefix, so steps admit, prefill, publish and evict as well.
// "verify", "speculate": as decode and as churn, and every decode verifies a chain of three drafts, 70% of which are
// right.
// Times are those that the step loop reports itself: without the runner's own work. That takes runner_us, the same
// work in every version: compare plan and commit of two runs where it is the same.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "engine/step_loop.h"
#include "runner/ranks/ranked_runner.h"
#include "runner/sim/sim_runner.h"

namespace fathom::engine {
namespace {

constexpr int kWarmupSteps = 200;
constexpr int kMeasuredSteps = 2000;
constexpr int kVocabSize = 32'000;

struct Case {
  const char* name;
  int num_running;
  bool churn = false;
  bool speculate = false;
  int num_lanes = 1;

  int num_steps() const { return kMeasuredSteps / num_lanes; }
  int max_running() const { return num_running * num_lanes; }
};

class Traffic {
 public:
  explicit Traffic(const Case& bench)
      : churn_(bench.churn),
        num_running_(bench.max_running()),
        most_tokens_((kWarmupSteps + kMeasuredSteps) * (bench.speculate ? 4 : 1) + 100) {
    for (int32_t& token : prefix_) token = pick(0, kVocabSize - 1);
  }

  // Keeps the running set full, with a few requests waiting when they come and go.
  void refill(StepLoop& loop) {
    const int wanted = churn_ ? num_running_ + std::max(1, num_running_ / 16) : num_running_;
    while (loop.num_live() < wanted) {
      const Status added = loop.add(next());
      if (!added) {
        std::fprintf(stderr, "%s\n", added.error().message.c_str());
        std::exit(1);
      }
    }
  }

 private:
  int pick(int min, int max) { return std::uniform_int_distribution<int>(min, max)(random_); }

  core::Request next() {
    core::Request request{.id = next_id_++};
    if (churn_ && pick(0, 1) == 0) request.prompt = prefix_;
    for (int i = churn_ ? pick(16, 256) : 16; i > 0; --i)
      request.prompt.push_back(pick(0, kVocabSize - 1));
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = churn_ ? pick(32, 512) : most_tokens_;
    return request;
  }

  std::mt19937 random_{42};
  bool churn_;
  int num_running_, most_tokens_;
  core::RequestId next_id_ = 0;
  std::vector<int32_t> prefix_ = std::vector<int32_t>(256);
};

double percentile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values.at(static_cast<size_t>(fraction * static_cast<double>(values.size() - 1)));
}

nlohmann::json summary(const std::vector<double>& values) {
  return {{"p50", percentile(values, 0.5)},
          {"p90", percentile(values, 0.9)},
          {"p99", percentile(values, 0.99)}};
}

runner::SimDrafterConfig chain_of_three() {
  return {.shape = {.num_steps = 3, .top_k = 1, .num_draft_tokens = 4}, .agreement = 0.7};
}

std::unique_ptr<runner::Runner> make_lanes(const runner::SimConfig& config, int num_lanes) {
  if (num_lanes == 1) return std::make_unique<runner::SimRunner>(config);
  std::vector<std::unique_ptr<runner::Runner>> lanes;
  for (int lane = 0; lane < num_lanes; ++lane)
    lanes.push_back(std::make_unique<runner::SimRunner>(config));
  return std::make_unique<runner::RankedRunner>(std::move(lanes), num_lanes);
}

void run(const Case& bench) {
  // Decoding sequences need no more than 40 blocks each, with drafts 140; with churn the cache fills up and evicts.
  const int blocks_each = bench.churn ? 10 : bench.speculate ? 140 : 40;
  const auto runner =
      make_lanes({.vocab_size = kVocabSize,
                  .num_blocks = bench.num_running * blocks_each,
                  .block_tokens = 64,
                  .max_slots = bench.num_running,
                  .max_batch_tokens = 8192 * bench.num_lanes,
                  .drafter = bench.speculate ? chain_of_three() : runner::SimDrafterConfig{}},
                 bench.num_lanes);
  StepLoop loop(*runner, {.chunked_prefill_size = 2048 * bench.num_lanes,
                          .speculation = {.enabled = bench.speculate}});
  Traffic traffic(bench);
  std::vector<double> plan_us, commit_us, sum_us, runner_us;
  StepUpdates updates;
  int64_t num_running = 0;
  for (int step = 0; step < kWarmupSteps + bench.num_steps(); ++step) {
    traffic.refill(loop);
    updates.tokens.clear();
    updates.requests.clear();
    const Clock::time_point start = system_clock().now();
    loop.step(updates);
    const std::chrono::duration<double, std::micro> step_us = system_clock().now() - start;
    if (step < kWarmupSteps) continue;
    const StepLoopStats stats = loop.stats();
    plan_us.push_back(stats.last_plan_us);
    commit_us.push_back(stats.last_commit_us);
    sum_us.push_back(stats.last_plan_us + stats.last_commit_us);
    runner_us.push_back(step_us.count() - sum_us.back());
    num_running += loop.num_running();
  }
  const StepLoopStats stats = loop.stats();
  const nlohmann::json line = {{"bench", "engine_host_time"},
                               {"case", bench.name},
                               {"lanes", bench.num_lanes},
                               {"max_running", bench.max_running()},
                               {"mean_running", num_running / bench.num_steps()},
                               {"steps", bench.num_steps()},
                               {"plan_us", summary(plan_us)},
                               {"commit_us", summary(commit_us)},
                               {"sum_us", summary(sum_us)},
                               {"runner_us", summary(runner_us)},
                               {"retractions", stats.num_retractions},
                               {"evicted_blocks", stats.num_evicted_blocks},
                               {"cached_tokens", stats.num_cached_tokens},
                               {"output_tokens", stats.num_output_tokens},
                               {"drafts_verified", stats.num_drafts_verified},
                               {"drafts_accepted", stats.num_drafts_accepted}};
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace
}  // namespace fathom::engine

int main(int argc, char** argv) {
  using fathom::engine::Case;
  const int only = argc > 1 ? std::atoi(argv[1]) : 0;  // 0 = all
  const int num_lanes = argc > 3 ? std::atoi(argv[3]) : 1;
  const std::string_view name = argc > 2 ? argv[2] : "";
  for (const int num_running : {32, 256, 1024}) {
    if (only != 0 && num_running != only) continue;
    for (Case bench :
         {Case{.name = "decode", .num_running = num_running},
          Case{.name = "churn", .num_running = num_running, .churn = true},
          Case{.name = "verify", .num_running = num_running, .speculate = true},
          Case{
              .name = "speculate", .num_running = num_running, .churn = true, .speculate = true}}) {
      bench.num_lanes = num_lanes;
      if (name.empty() || name == bench.name) fathom::engine::run(bench);
    }
  }
  return 0;
}
