#include "engine/engine_snapshot.h"

#include <algorithm>

namespace fathom::engine {
namespace {

void set(metrics::Counter& counter, int64_t total) {
  counter.set_total(static_cast<double>(total));
}

void show_load(const EngineSnapshot& now, EngineMetrics& metrics) {
  const auto rows = [&](int64_t blocks) { return static_cast<double>(blocks * now.block_tokens); };
  EngineLoad& load = metrics.load;
  load.num_running.set(now.num_running);
  load.num_waiting.set(now.num_waiting);
  load.kv_usage_ratio.set(static_cast<double>(now.num_used_blocks()) /
                          static_cast<double>(std::max<int64_t>(now.num_blocks, 1)));
  load.kv_used_tokens.set(rows(now.num_used_blocks()));
  load.kv_available_tokens.set(rows(now.num_free_blocks));
  load.kv_evictable_tokens.set(rows(now.num_cached_blocks));
  load.kv_fenced_tokens.set(rows(now.num_fenced_blocks));
  load.cache_hit_rate.set(now.cache_hit_rate);
  load.generation_tokens_per_second.set(now.has_work ? now.generation_tokens_per_second : 0);
  load.seconds_since_progress.set(now.seconds_since_progress);
  load.paused.set(now.paused ? 1 : 0);
  for (size_t lane = 0; lane < metrics.lanes.size(); ++lane) {
    metrics.lanes[lane].num_running->set(now.lanes[lane].num_running);
    metrics.lanes[lane].kv_used_tokens->set(rows(now.lanes[lane].num_used_blocks()));
  }
}

void show_totals(const EngineSnapshot& now, EngineTotals& totals) {
  set(totals.prompt_tokens, now.num_prompt_tokens);
  set(totals.cached_tokens, now.num_cached_tokens);
  set(totals.prefill_tokens, now.num_prefill_tokens);
  set(totals.generation_tokens, now.num_output_tokens);
  set(totals.wasted_tokens, now.num_wasted_tokens);
  set(totals.evicted_tokens, now.num_evicted_tokens);
  set(totals.steps, now.num_steps);
  set(totals.retractions, now.num_retractions);
  set(totals.grammar_dead_ends, now.grammar_failures.num_dead_ends);
  set(totals.grammar_refusals, now.grammar_failures.num_refusals);
  set(totals.grammar_without_memory, now.grammar_failures.num_without_memory);
  set(totals.requests_received, now.num_received);
}

void show_step_time(const StepTimeSnapshot& now, StepTimeMetrics& metrics) {
  metrics.bound_seconds.set(now.bound_seconds);
  metrics.longest_seconds.set(now.longest_seconds);
  metrics.predicted_seconds.set(now.predicted_seconds);
  metrics.error.set(now.error);
  metrics.steps.set_total(static_cast<double>(now.num_steps));
  metrics.cut_steps.set_total(static_cast<double>(now.num_cut));
  metrics.steps_over.set_total(static_cast<double>(now.num_over));
}

void show_speculation(const SpeculationSnapshot& now, SpeculationMetrics& metrics) {
  metrics.num_drafts.set(now.num_drafts);
  metrics.accept_length.set(now.accept_length);
  metrics.accept_rate.set(now.accept_rate);
  set(metrics.verify_slices, now.num_verify_slices);
  set(metrics.proposed_drafts, now.num_drafts_proposed);
  set(metrics.verified_drafts, now.num_drafts_verified);
  set(metrics.accepted_drafts, now.num_drafts_accepted);
}

}  // namespace

void show(const EngineSnapshot& now, EngineMetrics& metrics) {
  show_load(now, metrics);
  show_totals(now, metrics.totals);
  show_speculation(now.speculation, metrics.speculation);
  show_step_time(now.step_time, metrics.step_time);
}

}  // namespace fathom::engine
