#pragma once
// RequestState: a sequence with what only the step loop keeps of its request. Plain data of the engine's
// thread.

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "core/request.h"
#include "engine/updates.h"
#include "sched/sequence.h"

namespace fathom::engine {

struct RequestState : sched::Sequence {
  uint32_t client_tag = 0;
  Clock::time_point arrived{}, last_token{};
  RequestTimes times{};
  std::vector<core::SampledToken> prompt_logprobs{};
};

using RequestStatePtr = std::shared_ptr<RequestState>;

}  // namespace fathom::engine
