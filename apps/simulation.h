#pragma once
// Simulation: the runner of `--engine sim`, of as many ranks and lanes as the flags ask for. Each rank is a SimRunner;
// those of a lane must choose the same tokens, and the lanes tell one another what they would enter together, as a
// model's do: a difference ends the process with both names.
//
//   Simulation simulation(flags, config);
//   engine::ServingEngine engine(simulation.runner(), ...);
//
// Throws StartupError for what only a model has.

#include <deque>
#include <memory>

#include "apps/flags/serve_flags.h"
#include "config/model_config.h"
#include "runner/runner.h"
#include "runner/sim/collectives.h"

namespace fathom::apps {

class Simulation {
 public:
  Simulation(const ServeFlags& flags, const config::ModelConfig& config);
  runner::Runner& runner() { return *runner_; }

 private:
  std::deque<runner::SimCollectives> collectives_;  // [place in a lane], of several lanes
  std::unique_ptr<runner::Runner> runner_;
};

}  // namespace fathom::apps
