#pragma once
// RemoteRunner: on the node with the planner, the runner that stands for the ranks of one lane on another node. It
// sends them the lane's batches and masks, and its results are theirs; the node compares what its ranks sampled.
//
//   RemoteRunner runner(link, {.lane = 1, .num_lanes = 2, .like = local_runner});
//   runner.submit(batch);                          // the other end: Follower
//   core::StepResult result = runner.wait();
//
// Results of a node come by step and in it by lane, so the runners of one node wait, and end, in that order. Where the
// link fails, or brings what is no result of the step, on_failure is told and results are without slices. failure()
// says how the node's ranks differ.
//
// Threads and contract: runner.h. The link outlives it. The destructor waits until the node has done the lane's last
// step, which other lanes' ranks take part in, or has failed: all runners of the model finish() before.

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "comm/link.h"
#include "core/step_codec.h"
#include "runner/ranks/node_messages.h"
#include "runner/runner.h"

namespace fathom::runner {

class RemoteRunner : public Runner {
 public:
  struct Place {
    int lane = 0, num_lanes = 1;
    // A runner of the same model on this node, whose info() and slice_work() are its own. Outlives the steps.
    const Runner* like = nullptr;
    // By the thread that waits: no step in flight will end.
    std::function<void(const std::string& why)> on_failure{};
  };
  RemoteRunner(comm::Link& link, const Place& place);
  ~RemoteRunner() override;

  const RunnerInfo& info() const override { return info_; }
  void submit(const core::Batch& batch) override;
  core::StepResult wait() override;
  void share_masks(SharedMasks masks) override;
  core::SliceWork slice_work(int num_tokens, int64_t kv_begin) const override {
    return place_.like->slice_work(num_tokens, kv_begin);
  }
  int in_flight() const override { return static_cast<int>(in_flight_.size()); }
  int64_t next_step_id() const override { return next_step_id_; }
  void finish() override;
  void give_up() override { has_given_up_ = true; }
  std::string failure() const override;

 private:
  struct StepInFlight {
    int64_t step_id = 0;
    std::vector<int32_t> slots{};  // of its slices
  };
  // The node's next message; throws LinkFailure, also where there is none any more.
  NodeMessage receive();
  core::StepResult receive_result(const StepInFlight& step);

  comm::Link& link_;
  const Place place_;
  const RunnerInfo info_;
  const core::StepLimits limits_;
  std::deque<StepInFlight> in_flight_;  // caller's side
  int64_t next_step_id_ = 0;            // caller's side
  bool has_finished_ = false;           // caller's side
  std::atomic<bool> has_given_up_ = false;
  mutable Mutex mutex_;
  std::string failure_ FATHOM_GUARDED_BY(mutex_);  // how the node's ranks differ
};

}  // namespace fathom::runner
