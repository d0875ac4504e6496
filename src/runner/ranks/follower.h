#pragma once
// Follower: on a node without a planner, what brings the batches and masks that the planner's node sends to the ranks
// that are here, and their results back. The other end of RemoteRunner.
//
//   Follower follower(link, {{.lane = 1, .first_rank = 2, .runners = {&rank_2, &rank_3}}}, /*num_lanes=*/2);
//   std::string why = follower.run();      // returns when the planner's node says that it ends ("") or fails
//
// The ranks of a lane compute the same, so the first one's result goes back, with how the others differ. What is no
// plan of a step, a link that fails and whatever fail() is told end the run, and give the link up: then ranks may wait
// for ever, and the process ends as it is.
//
// run() uses two threads more, so a runner gets its batches and masks from others than the one that waits for its
// results. Owns nothing; runners are told to finish() before run() returns "".

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "comm/link.h"
#include "core/step_codec.h"
#include "runner/ranks/node_messages.h"
#include "runner/runner.h"

namespace fathom::runner {

struct FollowedLane {
  int lane = 0;
  int first_rank = 0;              // of all ranks of the model
  std::vector<Runner*> runners{};  // of the ranks here that the lane has, in their order; started
};

class Follower {
 public:
  // lanes: those with ranks here, rising. head: the link to the planner's node.
  Follower(comm::Link& head, const std::vector<FollowedLane>& lanes, int num_lanes);

  // Once. Returns why the planner's node or a rank has failed, in a sentence; empty = the service has ended.
  std::string run();
  // A rank here cannot go on. Any thread.
  void fail(const std::string& why);

 private:
  // What a slice's mask must have, so that no message is taken that its step does not want.
  struct WantedMasks {
    int64_t step_id = 0;
    std::vector<std::pair<int32_t, size_t>> slices{};  // index, words
  };
  struct Lane {
    FollowedLane of;
    core::StepLimits limits;
    bool has_ended = false;                 // by the thread of plans
    int64_t num_planned = 0, num_done = 0;  // steps; with mutex_ held
    std::vector<WantedMasks> wanted{};      // that have not come; with mutex_ held
  };

  void run_part(void (Follower::*part)());
  void take_plans();
  void take_plan(Lane& lane, const NodeMessage& message);
  void take_masks();
  bool wants(Lane& lane, const core::StepMasks& masks);
  void send_results();
  void send_result(Lane& lane);
  void send_ends();
  void wait_for_end();
  bool has_failed();
  Lane& lane_of(const NodeMessage& message);

  comm::Link& head_;
  std::vector<Lane> lanes_;
  Mutex mutex_;
  CondVar changed_;
  bool all_planned_ FATHOM_GUARDED_BY(mutex_) = false;  // no step follows
  bool is_done_ FATHOM_GUARDED_BY(mutex_) = false;      // nothing can fail any more
  std::string failure_ FATHOM_GUARDED_BY(mutex_);       // the first
  std::atomic<bool> is_over_ = false;
};

}  // namespace fathom::runner
