#pragma once
// Sequence: what scheduler and step loop know of one request from its arrival to its end.
//
//   Sequence sequence{.id = 7, .tokens = prompt, .num_prompt_tokens = 5, .sampling = params};
//   scheduler.enqueue(sequence);
//   ...  scheduler.remove(sequence, Scheduler::Rows::kValid);
//
// Whoever made it owns it and keeps it until no step in flight names it: results of a sequence that ended
// early still come. The scheduler moves it between waiting and running and fills the second half; the step
// loop appends tokens. Plain data of the engine's thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/prefetch.h"
#include "cache/block_pool.h"
#include "cache/radix_tree.h"
#include "core/request.h"

namespace fathom::sched {

// A step touches every running sequence, most of which the caches have lost since the step before: what it reads or
// writes comes first, in kStepLines cache lines.
struct alignas(kCacheLineBytes) Sequence {
  static constexpr size_t kStepLines = 3;

  core::RequestId id = 0;
  int64_t arrival = 0;  // counts up; distinct
  int priority = 0;
  int num_prompt_tokens = 0;
  bool reads_cache = true;  // false: every prompt token must be computed, for its log-probability
  bool is_masked = false;   // a constraint limits its tokens, from output first_masked_output on
  bool ended = false;       // no result is taken any more
  int first_masked_output = 0;
  // The scheduler's, down to its leases.
  int num_cached_tokens = -1;  // of the prompt, at the first admission; -1 = never admitted
  // While running; reset by every admission.
  int32_t slot = -1;       // -1 = waiting; numbered through all lanes
  int num_admissions = 0;  // results of slices planned before the last one say nothing about rows
  int num_prefill_tokens = 0;            // tokens known at admission, computed in chunks
  int num_computed_rows = 0;             // rows in the cache after every step committed
  int min_advance = 0, max_advance = 0;  // rows that its slices in flight add, together
  int num_drafts = 0;                    // its slot has at most, after every step submitted
  int num_row_capacity = 0;              // what its blocks hold
  cache::RadixTree::Pin pin{};           // the blocks at the front, which the cache owns
  std::vector<cache::BlockPool::Lease> leases{};  // the blocks behind them, one lease per KV group
  // The request's again.
  std::vector<int32_t> tokens{};          // the prompt, then what was sampled
  std::vector<int32_t> stop_token_ids{};  // eos included unless ignored
  core::SamplingParams sampling{};        // of this only max_new_tokens, which comes first

  // What a step rarely needs.
  uint64_t seed = 0;
  std::string cache_salt{};
  // The scheduler's.
  int num_retractions = 0;
  int64_t fan_out = 0;  // the request's: those of one body have the same; 0 = it is alone
  uint64_t owner = 0;   // the request's
  bool gives_way =
      false;  // runs only while nobody else needs its slot or blocks (Scheduler::set_gives_way)
  int64_t turn = -1;        // its place in the line, from when it first came to stand there
  int num_owed_tokens = 0;  // of a fan-out, in line or running: of its prompt, yet to be computed
  int num_overtaken = 0;    // admissions of later arrivals since it waits
  int num_deferred_steps = 0;  // passed over because a running sequence was computing its prefix
  int64_t last_deferral = -1;  // index of the plan
  int64_t hint_version = -1;   // of the cache when hint_tokens was looked up,
  int64_t hint_plan = -1;      // and in which plan; there
  size_t num_compared = 0;     // it was compared with so many that compute their prompts
  int64_t hint_tokens = 0;     // cached prefix, whole blocks; of several lanes the longest
  std::vector<int32_t> lane_blocks{};  // of several lanes: the blocks that each has of it

  int num_known_tokens() const { return static_cast<int>(tokens.size()); }
  int num_output_tokens() const { return num_known_tokens() - num_prompt_tokens; }
  // The last token sampled is never fed back, so it needs no row.
  int row_limit() const {
    const int max_new_tokens = sampling.max_new_tokens;
    return num_prompt_tokens + (max_new_tokens > 0 ? max_new_tokens - 1 : 0);
  }
  // After every step submitted it has at least and at most so many rows. How many drafts a step accepts is known
  // when it is committed; the device lets nothing pass the limit.
  int min_rows() const { return num_computed_rows + min_advance; }
  int max_rows() const { return std::min(row_limit(), num_computed_rows + max_advance); }
  // Chunks add what was planned, so both bounds are the same.
  bool in_prefill() const { return min_rows() < num_prefill_tokens; }
  // Of a slice whose last sample is this token, counted with the prompt.
  bool wants_mask(int last_token_idx) const {
    return is_masked && last_token_idx - num_prompt_tokens >= first_masked_output;
  }
  bool wants_decode() const { return !in_prefill() && min_rows() < row_limit(); }
};
static_assert(offsetof(Sequence, sampling) + sizeof(int) <= Sequence::kStepLines * kCacheLineBytes);

}  // namespace fathom::sched
