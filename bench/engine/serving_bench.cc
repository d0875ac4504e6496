// Host time per step through ServingEngine, over the simulated runner: what planning and committing cost on
// the engine's thread, and what the hand-over to the sink adds (counting, publishing, making the updates
// shared).
//
//   taskset -c 2,3 build/release/bench/bench_engine_serving
//
// One JSON line per case; every request decodes in every step. The sink drops the updates, so what the server
// does with them is not in the figures. The percentiles come from the engine's own histograms, five buckets
// per decade, interpolated.

#include <array>
#include <cstdio>
#include <thread>

#include "base/json.h"
#include "engine/serving_engine.h"
#include "runner/sim/sim_runner.h"

namespace fathom::engine {
namespace {

class DroppingSink : public UpdateSink {
 public:
  void on_updates(std::shared_ptr<const StepUpdates>) override {}
};

json::Value microseconds(const metrics::HistogramSnapshot& seconds) {
  return {{"p50", seconds.quantile(0.5) * 1e6},
          {"p90", seconds.quantile(0.9) * 1e6},
          {"p99", seconds.quantile(0.99) * 1e6},
          {"mean", seconds.mean() * 1e6}};
}

void run(int num_running) {
  constexpr int kWarmupTokens = 200, kTokens = 2000;
  runner::SimRunner runner({.vocab_size = 32'000,
                            .num_blocks = num_running * 40,
                            .max_slots = num_running,
                            .max_batch_tokens = 8192});
  DroppingSink sink;
  ServingEngine engine(runner, {}, sink);
  for (int i = 0; i < num_running; ++i) {
    core::Request request;
    request.prompt.assign(16, i);
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = kWarmupTokens + kTokens + 100;
    if (const auto id = engine.submit(std::move(request), 0); !id) {
      std::fprintf(stderr, "%s\n", id.error().message.c_str());
      return;
    }
  }
  const auto wait_for = [&](int num_tokens) {
    while (engine.snapshot().num_output_tokens < int64_t{num_tokens} * num_running)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const StepHistograms& steps = engine.metrics().steps;
  const auto look = [&] {
    return std::array{steps.plan_seconds.snapshot(), steps.commit_seconds.snapshot(),
                      steps.hand_over_seconds.snapshot()};
  };
  wait_for(kWarmupTokens);
  const auto before = look();
  wait_for(kWarmupTokens + kTokens);
  const auto after = look();
  const json::Value line = {{"bench", "engine_serving"},
                            {"running", num_running},
                            {"steps", after[0].since(before[0]).num_observations()},
                            {"plan_us", microseconds(after[0].since(before[0]))},
                            {"commit_us", microseconds(after[1].since(before[1]))},
                            {"hand_over_us", microseconds(after[2].since(before[2]))}};
  std::printf("%s\n", json::dump(line).c_str());
  std::fflush(stdout);
  engine.cancel_all();
}

}  // namespace
}  // namespace fathom::engine

int main() {
  for (const int num_running : {32, 256, 1024}) fathom::engine::run(num_running);
  return 0;
}
