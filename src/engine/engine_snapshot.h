#pragma once
// EngineSnapshot: one consistent look at the serving engine, for /server_info, /stats and /metrics.
//
//   const EngineSnapshot now = engine.snapshot();
//   show(now, metrics);                                // a scrape: gauges and totals as they are now
//
// Plain data.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine_metrics.h"
#include "engine/step_loop.h"

namespace fathom::engine {

// What drafts do for the engine. Counts since the start, of requests that had not ended.
struct SpeculationSnapshot {
  int max_drafts = 0;             // of a sequence; 0 = no speculation, and all else is 0
  int num_drafts = 0;             // asked for after each token now
  int64_t num_verify_slices = 0;  // a step that verifies drafts of k sequences counts k times
  int64_t num_drafts_proposed = 0, num_drafts_verified = 0, num_drafts_accepted = 0;
  // Over the last second of work; 0 when nothing was verified in it.
  double accept_length = 0, accept_rate = 0;

  // Tokens of a verifying step of one sequence since the start; 0 = none verified yet.
  double average_accept_length() const {
    return num_verify_slices == 0 ? 0
                                  : 1 + static_cast<double>(num_drafts_accepted) /
                                            static_cast<double>(num_verify_slices);
  }
};

// The bound on the time of steps in which requests decode, and how it is kept. Without a bound all is 0.
struct StepTimeSnapshot {
  double bound_seconds = 0;
  // The longest of them in the last second or two of work, and its prediction; 0 when idle.
  double longest_seconds = 0, predicted_seconds = 0;
  double error = 0;  // mean of |measured / predicted - 1| of all steps, lately
  int64_t num_steps = 0, num_cut = 0, num_over = 0;  // StepTimeStats
};

// What one lane has: a group of ranks with requests of its own. Blocks as in EngineSnapshot.
struct LaneSnapshot {
  int num_running = 0;
  int64_t num_blocks = 0, num_free_blocks = 0, num_cached_blocks = 0, num_fenced_blocks = 0;

  int64_t num_used_blocks() const {
    return num_blocks - num_free_blocks - num_cached_blocks - num_fenced_blocks;
  }
};

struct EngineSnapshot {
  int num_running = 0, num_waiting = 0;
  // KV group 0, of all lanes. Cached blocks are those of prefixes that no request uses now.
  int64_t num_blocks = 0, num_free_blocks = 0, num_cached_blocks = 0, num_fenced_blocks = 0;
  int block_tokens = 64;
  int64_t num_steps = 0, num_prompt_tokens = 0, num_cached_tokens = 0, num_output_tokens = 0;
  int64_t num_prefill_tokens = 0, num_wasted_tokens = 0, num_evicted_tokens = 0;
  int64_t num_retractions = 0;
  GrammarFailures grammar_failures{};
  int64_t num_received = 0, num_ended = 0;  // requests
  int64_t num_violations = 0;               // of invariants, since the start
  double generation_tokens_per_second = 0;  // over the last second of work; kept when idle
  double cache_hit_rate = 0;                // over the last second of work that admitted requests
  SpeculationSnapshot speculation{};
  StepTimeSnapshot step_time{};
  double seconds_since_progress = 0;  // while there is work: since a step last ended; 0 when idle
  bool has_work = false, draining = false, paused = false;
  std::string failure{};              // why no request can succeed any more; empty = they can
  std::vector<LaneSnapshot> lanes{};  // at least one

  int64_t num_used_blocks() const {
    return num_blocks - num_free_blocks - num_cached_blocks - num_fenced_blocks;
  }
};

// Sets the gauges and totals that are read at a scrape; those that count events are counted when these happen.
void show(const EngineSnapshot& now, EngineMetrics& metrics);

}  // namespace fathom::engine
