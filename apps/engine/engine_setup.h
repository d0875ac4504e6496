#pragma once
// From flags to a model that is ready to run: config -> backend -> model -> weights, with a progress bar ->
// memory plan -> runner. Logs every effective setting and the time of each phase.
//
//   ReadyModel ready = make_ready_model(flags);
//   engine::StepLoop loop(ready.runner(), step_loop_config(flags, ready));
//
// Throws StartupError. The struct owns everything: the ranks that the flags ask for, one thread and one part of the
// model each, and the runner over them.

#include <functional>
#include <memory>
#include <string>

#include "apps/engine/backend_choice.h"
#include "apps/flags/flags.h"
#include "config/model_config.h"
#include "engine/step_loop.h"
#include "model/model.h"
#include "nodes/cluster.h"
#include "ops/backend.h"
#include "runner/ranks/rank_group.h"

namespace fathom::apps {

struct ReadyModel {
  config::ModelConfig config;
  const ops::Backend* backend = nullptr;
  std::unique_ptr<nodes::Cluster> cluster;  // null: there are no other nodes
  std::unique_ptr<runner::RankGroup> ranks;

  runner::Runner& runner() const { return ranks->runner(); }
  const model::Model& model() const { return ranks->model(); }  // rank 0's part
};

// Told how far the start is: the phase and the part of it that is done, 0 to 1. May be called by several
// threads, one at a time.
using LoadObserver = std::function<void(const std::string& phase, double fraction)>;

ReadyModel make_ready_model(const EngineFlags& flags, const LoadObserver& observer = {});

// The parts, for subcommands that stop half-way (inspect).
config::ModelConfig load_config(const ModelFlags& flags);
// The same with the draft layer that speculation wants: the model's own, or one from a checkpoint of its own, which
// is checked. Throws where there is none.
config::ModelConfig load_config(const EngineFlags& flags);
model::ModelOptions model_options(const EngineFlags& flags, const ops::Backend& backend);
// --chunked-prefill-size, or what suits the backend.
int chunked_prefill_size(const EngineFlags& flags, const ops::Backend& backend);
// The sizes that the flags of CUDA graphs ask for, rising, none above --max-running-requests; empty = no step is
// captured.
std::vector<int> graph_batch_sizes(const EngineFlags& flags, const ops::Backend& backend);
// Loads or fills the parameters of all ranks, with a progress bar.
void load_weights(const EngineFlags& flags, runner::RankGroup& ranks,
                  const LoadObserver& observer = {});

engine::StepLoopConfig step_loop_config(const EngineFlags& flags, const ReadyModel& ready);

// Names that the checkpoint may hold and the model does not use: what --num-layers cuts away.
std::vector<std::string> ignored_prefixes(const ModelFlags& flags, const model::Model& model);

}  // namespace fathom::apps
