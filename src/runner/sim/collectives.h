#pragma once
// SimCollectives: what the lanes of a simulation would enter together. Every lane tells for each of its steps, in
// order, which collectives a model would run for the batch it was given; the first difference aborts with both lanes,
// and so does a lane that never came to a step when another is at the next one.
//
//   SimCollectives collectives(/*num_lanes=*/8);
//   collectives.enter(lane, {.step_id = 7, .entered = collectives_of(batch, lane, drafter)});
//
// One thread uses it. Outlives the runners that use it.

#include <cstdint>
#include <string>
#include <vector>

#include "core/batch.h"
#include "runner/runner.h"

namespace fathom::runner {

struct SimCollective {
  std::string name{};  // "forward pass", "draft pass 2"
  std::vector<int64_t> lane_starts{};
  std::string describe() const;
};

// Of a step of this lane. REQUIRES: the batch has what its shape says of the lane (checked).
std::vector<SimCollective> collectives_of(const core::Batch& batch, int lane,
                                          const DrafterInfo& drafter);

class SimCollectives {
 public:
  struct Step {
    int64_t step_id = 0;
    std::vector<SimCollective> entered{};
  };

  explicit SimCollectives(int num_lanes) : last_step_(static_cast<size_t>(num_lanes), -1) {}

  void enter(int lane, const Step& step);
  int64_t num_entered() const { return num_entered_; }

 private:
  std::vector<int64_t> last_step_;  // of each lane
  Step first_;  // of the step that is told at present, by the lane that told it first
  int first_lane_ = 0;
  int64_t num_entered_ = 0;
};

}  // namespace fathom::runner
