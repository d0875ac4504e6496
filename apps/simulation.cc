#include "apps/simulation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/flags/rank_flags.h"
#include "apps/flags/speculation_flags.h"
#include "base/startup_error.h"
#include "runner/ranks/ranked_runner.h"
#include "runner/sim/sim_runner.h"

namespace fathom::apps {
namespace {

constexpr int64_t kSimulatedTokens = int64_t{1} << 20;

// A simulated drafter knows what the simulated model will say, so how often it is right is a setting.
runner::SimDrafterConfig simulated_drafter(const SpeculationFlags& flags) {
  runner::SimDrafterConfig drafter{.shape = drafter_shape(flags)};
  if (!flags.draft_model_path.empty()) {
    throw StartupError(
        "--speculative-draft-model-path needs --engine model, a simulation reads no weights");
  }
  if (!flags.draft_model_quantization.empty())
    throw StartupError(
        "--speculative-draft-model-quantization needs --engine model, a simulation has no weights");
  if (!flags.simulate_accept_length) return drafter;
  if (drafter.shape.top_k > 1) {
    throw StartupError(
        "--simulate-accept-length with --engine sim needs --speculative-eagle-topk 1, is " +
        std::to_string(drafter.shape.top_k));
  }
  drafter.agreement = agreement_for(*flags.simulate_accept_length, drafter.shape.num_steps);
  return drafter;
}

runner::SimConfig sim_config(const ServeFlags& flags, const config::ModelConfig& config) {
  const MemoryFlags& memory = flags.engine.memory;
  const int block_tokens = runner::SimConfig{}.block_tokens;
  const int64_t tokens = memory.max_total_tokens.value_or(kSimulatedTokens);
  return {.vocab_size = config.vocab_size,
          .num_blocks = static_cast<int>((tokens + block_tokens - 1) / block_tokens),
          .block_tokens = block_tokens,
          .max_context_tokens =
              flags.engine.model.context_length.value_or(config.max_position_embeddings),
          .max_slots = slots_of_lane(flags.engine.ranks, memory.max_running_requests),
          .max_batch_tokens = std::max(*memory.chunked_prefill_size, memory.max_running_requests),
          .drafter = simulated_drafter(flags.engine.speculation),
          .step_delay = std::chrono::microseconds(flags.simulation.step_us)};
}

}  // namespace

Simulation::Simulation(const ServeFlags& flags, const config::ModelConfig& config) {
  check_simulated_ranks(flags.engine.ranks);
  const runner::RankSizes sizes = rank_sizes(flags.engine.ranks);
  for (int place = 0; sizes.dp > 1 && place < sizes.tp; ++place)
    collectives_.emplace_back(sizes.dp);
  std::vector<std::unique_ptr<runner::Runner>> ranks;
  for (int rank = 0; rank < sizes.count(); ++rank) {
    runner::SimConfig of_rank = sim_config(flags, config);
    of_rank.lane = rank / sizes.tp;
    if (sizes.dp > 1) of_rank.collectives = &collectives_[static_cast<size_t>(rank % sizes.tp)];
    ranks.push_back(std::make_unique<runner::SimRunner>(of_rank));
  }
  if (sizes.count() == 1)
    runner_ = std::move(ranks[0]);
  else
    runner_ = std::make_unique<runner::RankedRunner>(std::move(ranks), sizes.dp);
}

}  // namespace fathom::apps
