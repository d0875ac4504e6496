#pragma once
// RankedRunner: one runner over all ranks of a model. Those of a lane compute the same tokens: each gets every batch
// and every mask of its lane, and the lane's result is its first rank's, once all have theirs. All lanes take part in
// every step, with nothing of their own or something (core/step_lanes.h).
//
//   RankedRunner runner(std::move(members), /*num_lanes=*/2);    // started, in the order of ranks
//   runner.submit(batch);
//   core::StepResult result = runner.wait();
//
// The ranks of a lane must have sampled the same tokens and drafts, which is compared in every step. Where one has not,
// what they hold no longer belongs together: that is a failure, and so is a rank that does not come to a collective
// (fail()). It goes to the log, nothing is submitted any more, and from that step on every slice of every result has it
// as its error and no token. Nothing that was computed apart is served.
//
// Threads and contract: runner.h. Owns the members, which end together. A runner one of whose ranks waits for ever
// (fail()) cannot be destroyed: that ends the process with the failure.

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "core/step_difference.h"
#include "core/step_lanes.h"
#include "runner/runner.h"

namespace fathom::runner {

// What a RankedRunner is over: a rank, or ranks of a lane that compare themselves (remote_runner.h).
struct RankedMember {
  std::unique_ptr<Runner> runner;
  int lane = 0;
  int rank = 0;  // of all ranks of the model; the first
};

class RankedRunner : public Runner {
 public:
  // REQUIRES: the first one's rank is 0, every lane has one; they follow each other by rank, and have the same info().
  // group_failure: why what the members computed is worthless, behind every step; empty = it is not. May be null.
  RankedRunner(std::vector<RankedMember> members, int num_lanes,
               std::function<std::string()> group_failure);
  // A rank each, equally many in each lane.
  explicit RankedRunner(std::vector<std::unique_ptr<Runner>> members, int num_lanes = 1);
  ~RankedRunner() override;

  const RunnerInfo& info() const override { return info_; }
  void submit(const core::Batch& batch) override;
  core::StepResult wait() override;
  void share_masks(SharedMasks masks) override;
  core::SliceWork slice_work(int num_tokens, int64_t kv_begin) const override;
  int in_flight() const override;
  int64_t next_step_id() const override { return next_step_id_; }
  std::string failure() const override;
  // A rank cannot go on, and no step in flight will end. The first reason counts. Any thread.
  void fail(const std::string& why);

 private:
  struct StepInFlight {
    int64_t step_id = 0;
    std::vector<int32_t> slots{};            // of its slices
    std::vector<core::SlicePlace> places{};  // with several lanes
  };

  // The first rank's result of a lane, once it was compared with the others'.
  core::StepResult wait_for_lane(int lane);
  core::StepResult wait_for(const RankedMember& member);
  void compare(const core::StepResult& first, const core::StepResult& other,
               const core::TwoRanks& ranks);
  void set_failure(const std::string& why);

  std::vector<RankedMember> members_;
  const std::function<std::string()> group_failure_;
  RunnerInfo info_;
  core::LaneSizes sizes_;
  int64_t next_step_id_ = 0;  // caller's side
  mutable Mutex mutex_;
  std::deque<StepInFlight> in_flight_ FATHOM_GUARDED_BY(mutex_);
  std::string failure_ FATHOM_GUARDED_BY(mutex_);  // empty = none
  std::atomic<bool> is_stuck_ = false;             // ranks do not end
};

}  // namespace fathom::runner
