#pragma once
// The last five minutes of the engine, one sample a second: what GET /stats serves and the page plots.
//
//   StatsHistory history({.model = "deepseek-v3"});
//   history.add(read_stats(engine, metrics));          // once a second
//   std::string body = json::dump(history.to_json(unix_seconds(), /*since=*/0));
//
// A reading holds counters since the start; a sample holds what changed between two readings. Thread-safe.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/json_fwd.h"
#include "base/mutex.h"
#include "engine/engine_snapshot.h"
#include "metrics/metric.h"

namespace fathom::page {

// What engine::StepHistograms had counted.
struct StepSnapshots {
  metrics::HistogramSnapshot step, forward, sampling, mask_wait;  // the runner's
  metrics::HistogramSnapshot plan, commit, hand_over;             // the host's
};

struct StatsReading {
  double unix_seconds = 0;
  engine::EngineSnapshot engine;
  metrics::HistogramSnapshot first_token_seconds, inter_token_seconds;
  StepSnapshots steps;
};

struct LatencyPercentiles {
  double p50_ms = 0, p90_ms = 0, p99_ms = 0;
};

// Of what was observed between two snapshots of one histogram; none when nothing was.
std::optional<LatencyPercentiles> percentiles_between(const metrics::HistogramSnapshot& before,
                                                      const metrics::HistogramSnapshot& after);

// Seconds since 1970 with a fraction.
double unix_seconds();

class StatsHistory {
 public:
  struct Options {
    std::string model;
    int capacity_samples = 300;
    // Percentiles and the hit rate are taken over this long, or a slow second would show nothing.
    int window_samples = 10;
  };

  explicit StatsHistory(Options options);

  // The first reading is only the base of the next one. Readings that do not move time forward are dropped.
  void add(const StatsReading& reading);

  // {"now", "interval_s", "model", "current": {...}, "samples": [...]}; samples are those with t > since.
  json::Value to_json(double now, double since) const;

 private:
  struct Sample {
    double unix_seconds = 0;
    int running = 0, queued = 0;
    double prompt_tokens_per_s = 0, generation_tokens_per_s = 0, kv_usage = 0;
    std::optional<double> cache_hit_rate;
    std::optional<LatencyPercentiles> first_token, inter_token;
    bool speculates = false;
    int num_drafts = 0;
    double drafted_tokens_per_s = 0, accepted_tokens_per_s = 0;
    std::optional<double> accept_length, accept_rate;
    engine::StepTimeSnapshot step_time;
    // Means; none of what no step of the window had, or nobody measured.
    struct StepParts {
      std::optional<double> step_ms, forward_ms, sampling_ms, mask_wait_ms, plan_ms, commit_ms,
          hand_over_ms;
    } step_parts;
  };

  Sample sample_of(const StatsReading& reading) const FATHOM_REQUIRES(mutex_);
  void add_speculation(const StatsReading& reading, Sample& sample) const FATHOM_REQUIRES(mutex_);
  json::Value current() const FATHOM_REQUIRES(mutex_);
  static Sample::StepParts step_parts(const StepSnapshots& before, const StepSnapshots& after);
  static json::Value to_json(const Sample& sample);

  const Options options_;
  mutable Mutex mutex_;
  std::deque<StatsReading> window_
      FATHOM_GUARDED_BY(mutex_);                          // at most window_samples, oldest first
  std::deque<Sample> samples_ FATHOM_GUARDED_BY(mutex_);  // at most capacity_samples, oldest first
};

}  // namespace fathom::page
