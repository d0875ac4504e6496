#pragma once
// Which operators the steps of a model run on a backend, layer by layer. The steps go through the model's own
// code on a stream that measures (ops/stream.h) and records what is called, so the list cannot differ from what
// runs. Weights, cache and activations are address space only.
//
//   const BackendOperators listing = list_operators(config, options, cpu::fast_backend());
//   std::fputs(operators_text(listing).c_str(), stdout);
//
// A model with an MTP layer also verifies and drafts. What the runner calls around the model is listed by name.

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "config/model_config.h"
#include "model/model.h"

namespace fathom::apps {

struct OperatorCount {
  ops::OperatorCall call{};
  int count = 0;
  bool operator==(const OperatorCount&) const = default;
};

// A part of the step: what is before the layers, layers that run the same, what is behind them.
struct OperatorGroup {
  std::string where;
  std::vector<OperatorCount> operators;  // in the order of their first calls
};

struct StepOperators {
  std::string step;  // for people
  std::vector<OperatorGroup> groups;
};

struct BackendOperators {
  std::string backend, device;
  std::vector<StepOperators> steps;
  std::vector<std::string> fused;  // fused operators that run in one of the steps
  // Those whose parts run instead, or that the model has no use for.
  std::vector<std::string> in_parts;
  std::vector<std::string> runner;  // of every step: its inputs, sampling, what it keeps
  // And of a runner that speculates; empty = the model drafts nothing.
  std::vector<std::string> runner_drafts;
};

// Throws StartupError when the backend cannot run the model.
BackendOperators list_operators(const config::ModelConfig& config,
                                const model::ModelOptions& options, const ops::Backend& backend);

std::string operators_text(const BackendOperators& listing);
json::Value operators_json(const BackendOperators& listing);

}  // namespace fathom::apps
