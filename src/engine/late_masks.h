#pragma once
// LateMasks: brings a step's masks once every step before it is committed, while it already runs.
//
//   LateMasks masks(runner, executor);
//   runner.submit(step.batch);
//   ...  the steps before are committed ...
//   masks.start(step);                    // exactly once for every step; returns at once with an executor
//   runner.wait();                        // of this step: the masks have come
//
// A job lets the constraint accept the tokens that were committed since its last mask, then fills the mask. When
// drafts are verified it goes on from copies of the constraint, one per branch: a row for each draft.
// The next job for the same constraint comes after wait(), so one thread at a time uses it. Meanwhile the
// engine's thread appends no tokens to the sequences of the step and keeps them alive until it is done.

#include <atomic>
#include <functional>
#include <memory>

#include "runner/runner.h"
#include "sched/scheduler.h"

namespace fathom::engine {

// Runs a job, now or later, on any thread. Jobs are independent of each other and never wait.
using MaskExecutor = std::function<void(std::function<void()>)>;

class LateMasks {
 public:
  // Without an executor start() computes the masks itself.
  LateMasks(runner::Runner& runner, MaskExecutor executor);
  // Waits until no job uses the runner any more.
  ~LateMasks();
  LateMasks(const LateMasks&) = delete;
  LateMasks& operator=(const LateMasks&) = delete;
  // Every sequence of the step is a RequestState.
  void start(const sched::PlannedStep& step);
  // Returns when no job uses a sequence any more. After a runner's wait() that is so, unless the runner has failed and
  // waited for no masks.
  void wait_for_jobs() const;

 private:
  runner::Runner& runner_;
  MaskExecutor executor_;
  // Steps whose set_masks() has not returned. Shared with the jobs: the last one still touches it.
  std::shared_ptr<std::atomic<int>> num_pending_steps_;
};

}  // namespace fathom::engine
