#include "engine/engine_observer.h"

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/trace.h"

namespace fathom::engine {
namespace {

// Behind a check of everything, times that it took: whoever comes may find the engine at it.
constexpr double kWholeCheckPause = 1000;

std::vector<LaneSnapshot> lanes_of(const StepLoop& loop) {
  std::vector<LaneSnapshot> all;
  for (const sched::Lane& lane : loop.scheduler().lanes()) {
    const sched::KvUsage blocks = lane.blocks.usage();
    all.push_back({.num_running = static_cast<int>(lane.running.size()),
                   .num_blocks = blocks.num_blocks,
                   .num_free_blocks = blocks.num_free,
                   .num_cached_blocks = blocks.num_evictable,
                   .num_fenced_blocks = blocks.num_fenced});
  }
  return all;
}

}  // namespace

EngineObserver::EngineObserver(EngineMetrics& metrics, const ObserverConfig& config)
    : metrics_(metrics),
      config_(config),
      clock_(*config.clock),
      last_check_(clock_.now()),
      last_whole_check_(last_check_) {}

void EngineObserver::work_begins() {
  if (had_work_) return;
  rates_.open(clock_.now(), rate_totals());
  had_work_ = true;
}

void EngineObserver::observe(const StepLoopStats& stats, const StepUpdates& updates) {
  observe_step(stats);
  observe_requests(updates);
}

void EngineObserver::observe_step(const StepLoopStats& stats) {
  StepHistograms& steps = metrics_.steps;
  if (stats.num_steps > last_stats_.num_steps)
    steps.plan_seconds.observe(stats.last_plan_us * 1e-6);
  if (stats.num_committed_steps > last_stats_.num_committed_steps) {
    steps.commit_seconds.observe(stats.last_commit_us * 1e-6);
    steps.step_seconds.observe(stats.wall_seconds - last_stats_.wall_seconds);
    if (stats.last_forward_seconds >= 0) steps.forward_seconds.observe(stats.last_forward_seconds);
    if (stats.last_sampling_seconds >= 0)
      steps.sampling_seconds.observe(stats.last_sampling_seconds);
    steps.mask_wait_seconds.observe(stats.last_mask_wait_seconds);
  }
  if (stats.step_time.num_steps > last_stats_.step_time.num_steps)
    step_times_.add(clock_.now(), {.seconds = stats.step_time.last_seconds,
                                   .predicted_seconds = stats.step_time.last_predicted_seconds});
  metrics_.totals.queue_timeouts.set_total(static_cast<double>(stats.num_expired));
  last_stats_ = stats;
}

void EngineObserver::observe_requests(const StepUpdates& updates) {
  RequestHistograms& requests = metrics_.requests;
  // Requests that decode together have the same gap: one observation for all of them. Tokens that came together
  // share theirs.
  double gap = -1;
  uint64_t count = 0;
  for (const RequestUpdate& update : updates.requests) {
    if (update.first_token_seconds >= 0)
      requests.time_to_first_token_seconds.observe(update.first_token_seconds);
    if (update.token_gap_seconds >= 0) {
      const int32_t num_tokens = update.tokens_end - update.tokens_begin;
      const double token_gap = update.token_gap_seconds / num_tokens;
      if (token_gap != gap && count > 0)
        requests.inter_token_latency_seconds.observe(gap, std::exchange(count, 0));
      gap = token_gap;
      count += static_cast<uint64_t>(num_tokens);
    }
    if (update.end) observe_end(*update.end);
  }
  if (count > 0) requests.inter_token_latency_seconds.observe(gap, count);
}

void EngineObserver::observe_end(const RequestEnd& end) {
  RequestHistograms& requests = metrics_.requests;
  const RequestTimes& times = end.times;
  ++num_ended_;
  metrics_.totals.count_end(end.reason);
  requests.e2e_latency_seconds.observe(times.finished_seconds);
  requests.generation_tokens.observe(end.num_output_tokens);
  if (times.admitted_seconds >= 0) requests.queue_seconds.observe(times.admitted_seconds);
  if (times.first_token_seconds < 0) return;
  requests.prefill_seconds.observe(times.first_token_seconds - times.admitted_seconds);
  requests.decode_seconds.observe(times.finished_seconds - times.first_token_seconds);
}

void EngineObserver::check_when_due(const StepLoop& loop, bool has_work) {
  const Clock::time_point now = clock_.now();
  const double interval = config_.integrity_interval_seconds;
  const bool is_whole = interval == 0 || !has_work;
  const double since = seconds_between(is_whole ? last_whole_check_ : last_check_, now);
  if (since < (is_whole ? std::max(interval, kWholeCheckPause * whole_check_seconds_) : interval))
    return;
  check(loop, is_whole ? std::optional<uint64_t>() : num_parts_++);
  last_check_ = now;
  if (!is_whole) return;
  last_whole_check_ = now;
  whole_check_seconds_ = interval == 0 ? 0 : seconds_between(now, clock_.now());
}

void EngineObserver::check(const StepLoop& loop, std::optional<uint64_t> part) {
  const trace::Span span("engine", "check integrity");
  const std::string wrong = failpoint("serving_engine.integrity")
                                ? "failpoint serving_engine.integrity"
                                : loop.check_integrity(part);
  if (!wrong.empty()) {
    ++num_violations_;
    metrics_.totals.integrity_violations.add();
    FATHOM_LOG(kError, "engine", "integrity violated", {{"what", wrong}});
  }
  if (num_added_ != num_ended_ + loop.num_live()) {
    ++num_violations_;
    metrics_.totals.accounting_violations.add();
    FATHOM_LOG(kError, "engine", "accounting violated",
               {{"added", num_added_}, {"ended", num_ended_}, {"live", loop.num_live()}});
  }
}

RateWindow::Totals EngineObserver::rate_totals() const {
  return {.prompt_tokens = last_stats_.num_prompt_tokens,
          .cached_tokens = last_stats_.num_cached_tokens,
          .output_tokens = last_stats_.num_output_tokens,
          .verify_slices = last_stats_.num_verify_slices,
          .verified_drafts = last_stats_.num_drafts_verified,
          .accepted_drafts = last_stats_.num_drafts_accepted};
}

SpeculationSnapshot EngineObserver::speculation(const StepLoop& loop) const {
  if (loop.max_drafts() == 0) return {};
  return {.max_drafts = loop.max_drafts(),
          .num_drafts = loop.num_drafts(),
          .num_verify_slices = last_stats_.num_verify_slices,
          .num_drafts_proposed = last_stats_.num_drafts_proposed,
          .num_drafts_verified = last_stats_.num_drafts_verified,
          .num_drafts_accepted = last_stats_.num_drafts_accepted,
          .accept_length = rates_.accept_length(),
          .accept_rate = rates_.accept_rate()};
}

StepTimeSnapshot EngineObserver::step_time() const {
  const StepTimeStats& stats = last_stats_.step_time;
  const StepTimeWindow::Step& longest = step_times_.longest();
  return {.bound_seconds = config_.max_step_seconds,
          .longest_seconds = longest.seconds,
          .predicted_seconds = longest.predicted_seconds,
          .error = stats.error,
          .num_steps = stats.num_steps,
          .num_cut = stats.num_cut,
          .num_over = stats.num_over};
}

EngineSnapshot EngineObserver::look(const StepLoop& loop, bool has_work) {
  const StepLoopStats& stats = last_stats_;
  const Clock::time_point now = clock_.now();
  const RateWindow::Totals totals = rate_totals();
  if (had_work_) has_work ? rates_.advance(now, totals) : rates_.close(now, totals);
  had_work_ = has_work;
  if (!has_work) step_times_.clear();
  const sched::KvUsage blocks = loop.scheduler().kv_usage();
  return {.num_running = loop.num_running(),
          .num_waiting = loop.num_waiting(),
          .num_blocks = blocks.num_blocks,
          .num_free_blocks = blocks.num_free,
          .num_cached_blocks = blocks.num_evictable,
          .num_fenced_blocks = blocks.num_fenced,
          .block_tokens = config_.block_tokens,
          .num_steps = stats.num_steps,
          .num_prompt_tokens = stats.num_prompt_tokens,
          .num_cached_tokens = stats.num_cached_tokens,
          .num_output_tokens = stats.num_output_tokens,
          .num_prefill_tokens = stats.num_prefill_tokens,
          .num_wasted_tokens = stats.num_wasted_tokens,
          .num_evicted_tokens = stats.num_evicted_blocks * config_.block_tokens,
          .num_retractions = stats.num_retractions,
          .grammar_failures = stats.grammar_failures,
          .num_ended = num_ended_,
          .num_violations = num_violations_,
          .generation_tokens_per_second = rates_.tokens_per_second(),
          .cache_hit_rate = rates_.hit_rate(),
          .speculation = speculation(loop),
          .step_time = step_time(),
          .lanes = lanes_of(loop)};
}

}  // namespace fathom::engine
