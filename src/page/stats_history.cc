#include "page/stats_history.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"

namespace fathom::page {
namespace {

constexpr double kMsPerSecond = 1000;

double at_most_decimals(double value, int decimals) {
  const double scale = std::pow(10.0, decimals);
  return std::round(value * scale) / scale;
}

json::Value percentiles_json(const std::optional<LatencyPercentiles>& percentiles) {
  if (!percentiles) return nullptr;
  return {{"p50", at_most_decimals(percentiles->p50_ms, 3)},
          {"p90", at_most_decimals(percentiles->p90_ms, 3)},
          {"p99", at_most_decimals(percentiles->p99_ms, 3)}};
}

// Null for a second in which nobody decoded.
json::Value step_time_json(const engine::StepTimeSnapshot& step_time) {
  const auto milliseconds = [](double seconds) {
    return seconds > 0 ? json::Value(at_most_decimals(kMsPerSecond * seconds, 3))
                       : json::Value(nullptr);
  };
  return {{"bound", milliseconds(step_time.bound_seconds)},
          {"longest", milliseconds(step_time.longest_seconds)},
          {"predicted", milliseconds(step_time.predicted_seconds)}};
}

std::optional<double> mean_ms_between(const metrics::HistogramSnapshot& before,
                                      const metrics::HistogramSnapshot& after) {
  const metrics::HistogramSnapshot observed = after.since(before);
  if (observed.num_observations() == 0) return std::nullopt;
  return kMsPerSecond * observed.mean();
}

// Of a figure that there may be none of.
json::Value rounded(const std::optional<double>& value, int decimals) {
  return value ? json::Value(at_most_decimals(*value, decimals)) : json::Value(nullptr);
}

double fraction_of(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// Of the blocks that running sequences hold: not free, not only kept for reuse, not waiting for a step to end.
double kv_usage(const engine::EngineSnapshot& engine) {
  return std::clamp(fraction_of(engine.num_used_blocks(), engine.num_blocks), 0.0, 1.0);
}

}  // namespace

std::optional<LatencyPercentiles> percentiles_between(const metrics::HistogramSnapshot& before,
                                                      const metrics::HistogramSnapshot& after) {
  const metrics::HistogramSnapshot observed = after.since(before);
  if (observed.num_observations() == 0) return std::nullopt;
  return LatencyPercentiles{.p50_ms = kMsPerSecond * observed.quantile(0.5),
                            .p90_ms = kMsPerSecond * observed.quantile(0.9),
                            .p99_ms = kMsPerSecond * observed.quantile(0.99)};
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

StatsHistory::StatsHistory(Options options) : options_(std::move(options)) {}

void StatsHistory::add(const StatsReading& reading) {
  const MutexLock lock(mutex_);
  if (!window_.empty() && reading.unix_seconds <= window_.back().unix_seconds) {
    // The wall clock was set back: start over rather than show negative rates.
    if (reading.unix_seconds < window_.back().unix_seconds - 1) {
      window_.clear();
      samples_.clear();
      window_.push_back(reading);
    }
    return;
  }
  if (!window_.empty()) samples_.push_back(sample_of(reading));
  if (samples_.size() > static_cast<size_t>(options_.capacity_samples)) samples_.pop_front();
  window_.push_back(reading);
  if (window_.size() > static_cast<size_t>(options_.window_samples)) window_.pop_front();
}

StatsHistory::Sample StatsHistory::sample_of(const StatsReading& reading) const {
  const StatsReading& previous = window_.back();
  const StatsReading& base = window_.front();
  const double seconds = reading.unix_seconds - previous.unix_seconds;
  const auto rate = [&](int64_t now, int64_t before) {
    return std::max(0.0, static_cast<double>(now - before) / seconds);
  };
  Sample sample;
  sample.unix_seconds = reading.unix_seconds;
  sample.running = reading.engine.num_running;
  sample.queued = reading.engine.num_waiting;
  sample.prompt_tokens_per_s =
      rate(reading.engine.num_prompt_tokens, previous.engine.num_prompt_tokens);
  sample.generation_tokens_per_s =
      rate(reading.engine.num_output_tokens, previous.engine.num_output_tokens);
  sample.kv_usage = kv_usage(reading.engine);
  const int64_t prompt_tokens = reading.engine.num_prompt_tokens - base.engine.num_prompt_tokens;
  if (prompt_tokens > 0) {
    sample.cache_hit_rate = fraction_of(
        reading.engine.num_cached_tokens - base.engine.num_cached_tokens, prompt_tokens);
  }
  sample.first_token = percentiles_between(base.first_token_seconds, reading.first_token_seconds);
  sample.inter_token = percentiles_between(base.inter_token_seconds, reading.inter_token_seconds);
  add_speculation(reading, sample);
  sample.step_time = reading.engine.step_time;
  sample.step_parts = step_parts(base.steps, reading.steps);
  return sample;
}

void StatsHistory::add_speculation(const StatsReading& reading, Sample& sample) const {
  const engine::SpeculationSnapshot& now = reading.engine.speculation;
  const engine::SpeculationSnapshot& previous = window_.back().engine.speculation;
  const engine::SpeculationSnapshot& base = window_.front().engine.speculation;
  const double seconds = reading.unix_seconds - window_.back().unix_seconds;
  sample.speculates = now.max_drafts > 0;
  sample.num_drafts = now.num_drafts;
  sample.drafted_tokens_per_s =
      static_cast<double>(now.num_drafts_verified - previous.num_drafts_verified) / seconds;
  sample.accepted_tokens_per_s =
      static_cast<double>(now.num_drafts_accepted - previous.num_drafts_accepted) / seconds;
  const int64_t num_slices = now.num_verify_slices - base.num_verify_slices;
  if (num_slices > 0) {
    sample.accept_length =
        1 + fraction_of(now.num_drafts_accepted - base.num_drafts_accepted, num_slices);
  }
  const int64_t num_verified = now.num_drafts_verified - base.num_drafts_verified;
  if (num_verified > 0) {
    sample.accept_rate =
        fraction_of(now.num_drafts_accepted - base.num_drafts_accepted, num_verified);
  }
}

StatsHistory::Sample::StepParts StatsHistory::step_parts(const StepSnapshots& before,
                                                         const StepSnapshots& after) {
  return {.step_ms = mean_ms_between(before.step, after.step),
          .forward_ms = mean_ms_between(before.forward, after.forward),
          .sampling_ms = mean_ms_between(before.sampling, after.sampling),
          .mask_wait_ms = mean_ms_between(before.mask_wait, after.mask_wait),
          .plan_ms = mean_ms_between(before.plan, after.plan),
          .commit_ms = mean_ms_between(before.commit, after.commit),
          .hand_over_ms = mean_ms_between(before.hand_over, after.hand_over)};
}

json::Value StatsHistory::to_json(const Sample& sample) {
  const Sample::StepParts& parts = sample.step_parts;
  json::Value value = {
      {"t", at_most_decimals(sample.unix_seconds, 3)},
      {"running", sample.running},
      {"queued", sample.queued},
      {"prompt_tokens_per_s", at_most_decimals(sample.prompt_tokens_per_s, 1)},
      {"generation_tokens_per_s", at_most_decimals(sample.generation_tokens_per_s, 1)},
      {"kv_usage", at_most_decimals(sample.kv_usage, 4)},
      {"cache_hit_rate", rounded(sample.cache_hit_rate, 4)},
      {"ttft_ms", percentiles_json(sample.first_token)},
      {"itl_ms", percentiles_json(sample.inter_token)},
      {"step_parts_ms",
       {{"step", rounded(parts.step_ms, 4)},
        {"forward", rounded(parts.forward_ms, 4)},
        {"sampling", rounded(parts.sampling_ms, 4)},
        {"mask_wait", rounded(parts.mask_wait_ms, 4)},
        {"plan", rounded(parts.plan_ms, 4)},
        {"commit", rounded(parts.commit_ms, 4)},
        {"hand_over", rounded(parts.hand_over_ms, 4)}}}};
  if (sample.step_time.bound_seconds > 0) value["step_ms"] = step_time_json(sample.step_time);
  if (!sample.speculates) return value;
  value["num_drafts"] = sample.num_drafts;
  value["drafted_tokens_per_s"] = at_most_decimals(sample.drafted_tokens_per_s, 1);
  value["accepted_tokens_per_s"] = at_most_decimals(sample.accepted_tokens_per_s, 1);
  value["accept_length"] = rounded(sample.accept_length, 3);
  value["accept_rate"] = rounded(sample.accept_rate, 4);
  return value;
}

json::Value StatsHistory::current() const {
  json::Value value = samples_.empty() ? json::Value::object() : to_json(samples_.back());
  if (window_.empty()) return value;
  const engine::EngineSnapshot& engine = window_.back().engine;
  value["running"] = engine.num_running;
  value["queued"] = engine.num_waiting;
  value["kv_blocks"] = engine.num_blocks;
  value["kv_free_blocks"] = engine.num_free_blocks;
  value["kv_cached_blocks"] = engine.num_cached_blocks;
  value["block_tokens"] = engine.block_tokens;
  value["steps"] = engine.num_steps;
  value["prompt_tokens"] = engine.num_prompt_tokens;
  value["cached_tokens"] = engine.num_cached_tokens;
  value["output_tokens"] = engine.num_output_tokens;
  value["retractions"] = engine.num_retractions;
  value["max_drafts"] = engine.speculation.max_drafts;
  value["max_step_ms"] = at_most_decimals(kMsPerSecond * engine.step_time.bound_seconds, 3);
  return value;
}

json::Value StatsHistory::to_json(double now, double since) const {
  const MutexLock lock(mutex_);
  json::Value samples = json::Value::array();
  for (const Sample& sample : samples_) {
    // Compared as it is written, or a client that sends back the last t would get that sample again.
    if (at_most_decimals(sample.unix_seconds, 3) > since) samples.push_back(to_json(sample));
  }
  return {{"now", at_most_decimals(now, 3)},
          {"interval_s", 1},
          {"model", options_.model},
          {"current", current()},
          {"samples", std::move(samples)}};
}

}  // namespace fathom::page
