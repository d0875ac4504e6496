#pragma once
// Sequence: what the engine knows of one request from its arrival to its end.
//
//   auto sequence = std::make_shared<Sequence>();
//   sequence->id = 7;  sequence->tokens = prompt;  sequence->num_prompt_tokens = 5;
//   scheduler.enqueue(sequence);
//
// The scheduler moves it between waiting and running and owns its blocks; the step loop appends tokens and
// ends it. Steps in flight share ownership, so a sequence that ended early outlives them and their results
// for it are dropped. Plain data of the engine's thread.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/block_pool.h"
#include "core/request.h"

namespace fathom::sched {

struct Sequence {
  core::RequestId id = 0;
  int64_t arrival = 0;            // counts up; the order of admission
  std::vector<int32_t> tokens{};  // the prompt, then what was sampled
  int num_prompt_tokens = 0;
  core::SamplingParams sampling{};
  std::vector<int32_t> stop_token_ids{};  // eos included unless ignored
  uint64_t seed = 0;
  bool ended = false;  // no result is taken any more
  int num_retractions = 0;

  // While running; reset by every admission.
  int32_t slot = -1;                              // -1 = waiting
  int num_prefill_tokens = 0;                     // tokens known at admission, computed in chunks
  int num_rows = 0;                               // rows in the cache after every step submitted
  int num_planned_outputs = 0;                    // tokens out or being sampled by a step in flight
  std::vector<cache::BlockPool::Lease> leases{};  // one per KV group

  int num_known_tokens() const { return static_cast<int>(tokens.size()); }
  int num_output_tokens() const { return num_known_tokens() - num_prompt_tokens; }
  // The last token sampled is never fed back, so it needs no row.
  int max_rows() const {
    const int max_new_tokens = sampling.max_new_tokens;
    return num_prompt_tokens + (max_new_tokens > 0 ? max_new_tokens - 1 : 0);
  }
  bool in_prefill() const { return num_rows < num_prefill_tokens; }
  bool wants_decode() const {
    return !in_prefill() && num_planned_outputs < sampling.max_new_tokens;
  }
};

using SequencePtr = std::shared_ptr<Sequence>;

}  // namespace fathom::sched
