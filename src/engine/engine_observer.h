#pragma once
// EngineObserver: what the serving engine's thread sees of its steps and requests: histograms, rates of the last second
// of work, counts that must agree, and the look that others read.
//
//   EngineObserver observer(metrics, {.clock = clock, .block_tokens = 64});
//   observer.work_begins();                            // before a step, when there is something to compute
//   observer.count_added();                            // for each accepted request that the engine's thread takes
//   observer.observe(loop.stats(), updates);           // after each step
//   observer.check_when_due(loop, has_work);
//   const EngineSnapshot look = observer.look(loop, has_work);
//
// The metrics and the clock outlive it. One thread.

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "engine/engine_metrics.h"
#include "engine/engine_snapshot.h"
#include "engine/rate_window.h"
#include "engine/step_loop.h"
#include "engine/step_time_window.h"
#include "engine/updates.h"

namespace fathom::engine {

struct ObserverConfig {
  const Clock* clock;
  int block_tokens = 64;              // of KV group 0
  double max_step_seconds = 0;        // StepLoopConfig's
  double integrity_interval_seconds;  // ServingConfig's
};

class EngineObserver {
 public:
  EngineObserver(EngineMetrics& metrics, const ObserverConfig& config);

  void work_begins();
  void count_added() { ++num_added_; }
  void observe(const StepLoopStats& stats, const StepUpdates& updates);
  // What is found wrong is logged and counted, and the engine goes on. While there is work a part is looked at, and
  // everything when there is none any more: that takes as long as some steps do.
  void check_when_due(const StepLoop& loop, bool has_work);
  // All but what only the engine knows: requests received, a drain, a pause, a failure.
  EngineSnapshot look(const StepLoop& loop, bool has_work);

 private:
  void observe_step(const StepLoopStats& stats);
  void observe_requests(const StepUpdates& updates);
  void observe_end(const RequestEnd& end);
  void check(const StepLoop& loop, std::optional<uint64_t> part);
  RateWindow::Totals rate_totals() const;
  SpeculationSnapshot speculation(const StepLoop& loop) const;
  StepTimeSnapshot step_time() const;

  EngineMetrics& metrics_;
  const ObserverConfig config_;
  const Clock& clock_;
  StepLoopStats last_stats_;
  RateWindow rates_;
  StepTimeWindow step_times_;
  bool had_work_ = false;
  Clock::time_point last_check_, last_whole_check_;
  double whole_check_seconds_ = 0;  // that the last one took
  uint64_t num_parts_ = 0;
  int64_t num_added_ = 0, num_ended_ = 0, num_violations_ = 0;
};

}  // namespace fathom::engine
