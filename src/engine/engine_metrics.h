#pragma once
// EngineMetrics: what the serving engine counts and times, under our names and those that dashboards of
// SGLang and vLLM know. docs/metrics.md lists them all with their meaning.
//
//   metrics::Registry registry(metrics::Labels{{"model_name", "demo"}, {"engine_type", "unified"}});
//   EngineMetrics metrics(registry, {.block_tokens = 64, .num_blocks = 1024, .max_context_tokens = 4096});
//   metrics.requests.time_to_first_token_seconds.observe(0.08);
//   metrics.add_startup({.total_seconds = 2.5, .load_weights_seconds = 1.9});
//
// The members are references into the registry, which outlives this object; one registry has one
// EngineMetrics. Thread-safe as the handles are.

#include <array>
#include <cstdint>
#include <vector>

#include "core/request.h"
#include "metrics/registry.h"

namespace fathom::engine {

// What does not change while the engine lives.
struct EngineDimensions {
  int block_tokens = 64;
  int64_t num_blocks = 0;  // of KV group 0
  int64_t max_context_tokens = 0;
  int num_lanes = 1;
};

struct StartupTimes {
  double total_seconds = 0;         // process start to ready
  double load_weights_seconds = 0;  // part of it
};

// The engine now.
struct EngineLoad {
  explicit EngineLoad(metrics::Registry& registry);
  metrics::Gauge &num_running, &num_waiting;
  metrics::Gauge &kv_usage_ratio, &kv_used_tokens, &kv_available_tokens, &kv_evictable_tokens,
      &kv_fenced_tokens;
  metrics::Gauge &cache_hit_rate, &generation_tokens_per_second, &seconds_since_progress;
  metrics::Gauge& paused;
};

// Of one lane, where there are several.
struct LaneLoad {
  LaneLoad(metrics::Registry& registry, int lane);
  metrics::Gauge *num_running, *kv_used_tokens;
};

// Since the start.
struct EngineTotals {
  explicit EngineTotals(metrics::Registry& registry);
  // Counts the end of a request under its reason.
  void count_end(core::FinishReason reason);

  metrics::Counter &prompt_tokens, &cached_tokens, &prefill_tokens, &generation_tokens,
      &wasted_tokens, &evicted_tokens;
  metrics::Counter &steps, &retractions;
  metrics::Counter &requests_received, &requests_finished, &requests_aborted;
  metrics::Counter &rejected_invalid, &rejected_queue_full, &rejected_draining, &queue_timeouts;
  metrics::Counter &grammar_dead_ends, &grammar_refusals, &grammar_without_memory;
  metrics::Counter &integrity_violations, &accounting_violations;
  std::array<metrics::Counter*, 4> requests_by_reason;  // stop, length, abort, error
};

// Drafts; all 0 without speculation.
struct SpeculationMetrics {
  explicit SpeculationMetrics(metrics::Registry& registry);
  metrics::Gauge &num_drafts, &accept_length, &accept_rate;
  metrics::Counter &verify_slices, &proposed_drafts, &verified_drafts, &accepted_drafts;
};

// The bound on the time of steps in which requests decode; without one all are 0.
struct StepTimeMetrics {
  explicit StepTimeMetrics(metrics::Registry& registry);
  metrics::Gauge &bound_seconds, &longest_seconds, &predicted_seconds, &error;
  metrics::Counter &steps, &cut_steps, &steps_over;
};

// Of requests, from submit(), and their sizes.
struct RequestHistograms {
  explicit RequestHistograms(metrics::Registry& registry);
  metrics::Histogram &time_to_first_token_seconds, &inter_token_latency_seconds,
      &e2e_latency_seconds, &queue_seconds, &prefill_seconds, &decode_seconds;
  metrics::Histogram &prompt_tokens, &generation_tokens;
};

// Where the time of a step goes.
struct StepHistograms {
  explicit StepHistograms(metrics::Registry& registry);
  metrics::Histogram &step_seconds, &forward_seconds, &sampling_seconds, &mask_wait_seconds;
  metrics::Histogram &plan_seconds, &commit_seconds, &hand_over_seconds, &mask_seconds;
};

class EngineMetrics {
 public:
  EngineMetrics(metrics::Registry& registry, const EngineDimensions& dimensions);
  EngineMetrics(const EngineMetrics&) = delete;
  EngineMetrics& operator=(const EngineMetrics&) = delete;

  // Exported from now on; called once, by whoever timed the start.
  void add_startup(const StartupTimes& times);

 private:
  metrics::Registry& registry_;

 public:
  EngineLoad load;
  std::vector<LaneLoad> lanes;  // none where there is one
  EngineTotals totals;
  SpeculationMetrics speculation;
  StepTimeMetrics step_time;
  RequestHistograms requests;
  StepHistograms steps;
};

}  // namespace fathom::engine
