#pragma once
// RequestState: a sequence with what only the step loop keeps of its request. Owned by the step loop, until no
// step in flight names it. Plain data of the engine's thread, but for the constraint's part, which the jobs of
// late_masks.h use while a step with a mask for it is in flight.

#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "core/request.h"
#include "core/token_constraint.h"
#include "engine/updates.h"
#include "sched/sequence.h"

namespace fathom::engine {

struct RequestState : sched::Sequence {
  uint32_t client_tag = 0;
  Clock::time_point arrived{}, last_token{};
  RequestTimes times{};
  std::vector<core::SampledToken> prompt_logprobs{};
  core::SpeculationCounts speculation{};

  std::shared_ptr<core::TokenConstraint> constraint{};
  int num_constrained_tokens = 0;  // of `tokens`: the prompt, and what the constraint has accepted
  // Constrained: what the slot verifies in the step whose masks come next, or can.
  std::vector<core::Draft> drafts{};
  // Why the request cannot go on: it refused a token that was sampled, or allows none. Empty: it can.
  std::string_view constraint_error{};
};

}  // namespace fathom::engine
