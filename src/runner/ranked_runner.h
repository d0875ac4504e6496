#pragma once
// RankedRunner: one runner over all ranks of a model. Those of a lane compute the same tokens: each gets every batch
// and every mask of its lane, and the lane's result is its first rank's, once all have theirs. All lanes take part in
// every step, with nothing of their own or something (lanes.h).
//
//   RankedRunner runner(std::move(members), /*num_lanes=*/2);    // started, in the order of ranks
//   runner.submit(batch);
//   core::StepResult result = runner.wait();
//
// The ranks of a lane must have sampled the same tokens and drafts, which is compared in every step. Where one has not,
// what they hold no longer belongs together: the error goes to the log with the rank, and from that step on every slice
// of every result has it as its error and no token. Nothing that was computed apart is served.
//
// Threads and contract: runner.h. Owns the members, which end together.

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runner/lanes.h"
#include "runner/runner.h"

namespace fathom::runner {

class RankedRunner : public Runner {
 public:
  // REQUIRES: at least one, and equally many in each lane; all have the same info().
  explicit RankedRunner(std::vector<std::unique_ptr<Runner>> members, int num_lanes = 1);
  ~RankedRunner() override;

  const RunnerInfo& info() const override { return info_; }
  void submit(const core::Batch& batch) override;
  core::StepResult wait() override;
  void set_masks(core::StepMasks masks) override;
  core::SliceWork slice_work(int num_tokens, int64_t kv_begin) const override;
  int in_flight() const override { return members_[0]->in_flight(); }
  int64_t next_step_id() const override { return members_[0]->next_step_id(); }

 private:
  struct StepInFlight {
    int64_t step_id = 0;
    std::vector<SlicePlace> places;
  };

  size_t ranks_per_lane() const { return members_.size() / static_cast<size_t>(sizes_.num_lanes); }
  // The first rank's result of a lane, once it was compared with the others'.
  core::StepResult wait_for_lane(int lane);
  void compare(const core::StepResult& first, const core::StepResult& other, int first_rank,
               int rank);

  std::vector<std::unique_ptr<Runner>> members_;
  RunnerInfo info_;
  LaneSizes sizes_;
  std::string desync_;  // empty = all agree
  std::mutex mutex_;
  std::deque<StepInFlight> in_flight_;  // guarded by mutex_
};

struct TwoRanks {
  int first = 0, other = 0;
};
// How two ranks' results of a step differ, in a sentence; empty = they do not.
std::string difference(const core::StepResult& first, const core::StepResult& other,
                       const TwoRanks& ranks);

}  // namespace fathom::runner
