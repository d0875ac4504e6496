#pragma once
// The flags of speculative decoding, under SGLang's names, and what follows from them for drafter and engine.
//
//   SpeculationFlags flags;
//   speculation_flags().add_to(*subcommand, flags);
//   ... parse ...
//   runner::DrafterInfo shape = drafter_shape(flags);    // num_steps 0: nothing drafts
//
// The struct must outlive the parse. Throws StartupError.

#include <optional>
#include <string>

#include "apps/flags/flag_table.h"
#include "base/json_fwd.h"
#include "engine/speculation.h"
#include "runner/runner.h"

namespace fathom::apps {

struct SpeculationFlags {
  std::string algorithm;  // NEXTN, EAGLE (the same); empty = no speculation
  // None = the default: one step, a chain, and as many draft tokens as that makes.
  std::optional<int> num_steps{}, eagle_topk{}, num_draft_tokens{};
  std::string draft_model_path;          // empty = the MTP layer of the model's own checkpoint
  std::string draft_model_quantization;  // fp8; empty = its matrices as they are
  std::optional<bool> adaptive;          // none = on
  std::optional<double> simulate_accept_length;

  bool enabled() const { return !algorithm.empty(); }
  bool is_adaptive() const { return enabled() && adaptive.value_or(true); }
};

const FlagTable<SpeculationFlags>& speculation_flags();

// The shape that the flags ask for, with defaults filled in. Refuses values that contradict each other, and
// flags that would do nothing because no algorithm is named.
runner::DrafterInfo drafter_shape(const SpeculationFlags& flags);
// What the step loop is told: all that the runner's drafter offers.
engine::SpeculationConfig speculation_config(const SpeculationFlags& flags);
// What the table shows: every effective setting under the name of its flag; null where nothing drafts.
json::Value speculation_settings(const SpeculationFlags& flags);

// How often a draft after accepted ones must be right so that a verifying step yields `accept_length` tokens on
// average, of a chain of num_steps drafts; and the other way round.
double agreement_for(double accept_length, int num_steps);
double accept_length_for(double agreement, int num_steps);

}  // namespace fathom::apps
