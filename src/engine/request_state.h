#pragma once
// RequestState: a sequence with what only the step loop keeps of its request. Owned by the step loop, until no
// step in flight names it. Plain data of the engine's thread, but for the constraint's part, which the jobs of
// late_masks.h use while a step with a mask for it is in flight.
//
//   RequestPool pool;
//   RequestPool::Owner state = pool.make();      // comes before the pool's end
//
// Those of a pool lie side by side. A step touches all that run: one by one on the heap each has a page of its own, and
// more time goes into finding the pages than into reading them. The pool's memory is as much as its requests ever had
// together. One thread uses it.

#include <memory>
#include <memory_resource>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/prefetch.h"
#include "core/request.h"
#include "core/token_constraint.h"
#include "engine/speculation.h"
#include "engine/updates.h"
#include "sched/sequence.h"

namespace fathom::engine {

struct RequestState : sched::Sequence {
  // What every commit reads or writes, in as many cache lines.
  static constexpr size_t kCommitLines = 2;
  alignas(kCacheLineBytes) Clock::time_point last_token{};
  RequestTimes times{};
  // Why the request cannot go on: its constraint refused a token that was sampled, or allows none. Empty: it can.
  std::string_view constraint_error{};
  uint32_t client_tag = 0;
  RunningSpeculation speculation{};

  Clock::time_point arrived{};
  bool owes_prompt_logprobs = false;  // they have not been given out
  std::vector<core::SampledToken> prompt_logprobs{};
  std::shared_ptr<core::TokenConstraint> constraint{};
  int num_constrained_tokens = 0;  // of `tokens`: the prompt, and what the constraint has accepted
  // Constrained: what the slot verifies in the step whose masks come next, or can.
  std::vector<core::Draft> drafts{};
};

class RequestPool {
 public:
  struct GiveBack {
    std::pmr::memory_resource* memory = nullptr;
    void operator()(RequestState* state) const {
      std::destroy_at(state);
      memory->deallocate(state, sizeof(RequestState), alignof(RequestState));
    }
  };
  using Owner = std::unique_ptr<RequestState, GiveBack>;

  Owner make() {
    void* const place = memory_.allocate(sizeof(RequestState), alignof(RequestState));
    return Owner(new (place) RequestState, {.memory = &memory_});
  }

 private:
  std::pmr::unsynchronized_pool_resource memory_;
};

}  // namespace fathom::engine
