#pragma once
// PrefillBudget: shares the prompt tokens of one step out among the prompts that want some.
//
//   PrefillBudget budget(slice_work, block_tokens);
//   budget.start({.num_tokens = 2048});                               // as many as there is room for
//   budget.start({.num_tokens = 2048, .seconds = 0.04, .cost = &cost});   // and no longer than that
//   Chunk chunk = budget.take({.first_position = 512, .num_wanted = 9000}); // in the order of rank
//   budget.take_more(chunk);                                          // then what the others left
//
// Prompts that need more than the step offers are long: together they get half of it, and the rest what is left when
// the short ones have theirs. With a time limit the first prompt gets a token at least, whatever that costs.
// Lanes compute side by side: tokens are of all of them together, and each has the time limit for itself.
// A chunk that does not end its prompt is cut so that it ends at a round position, the end of a block if it is long
// enough.
// Plain data of one plan.

#include <functional>
#include <utility>
#include <vector>

#include "core/slice_work.h"
#include "sched/step_cost.h"

namespace fathom::sched {

// The work of a slice of num_tokens query tokens behind kv_begin rows (Runner::slice_work).
using SliceWorkOf = std::function<core::SliceWork(int num_tokens, int64_t kv_begin)>;

class PrefillBudget {
 public:
  struct Step {
    int num_tokens = 0;
    double seconds = 0;              // for chunks, of each lane
    const StepCost* cost = nullptr;  // null = no time limit
  };
  struct Wish {
    int first_position = 0, num_wanted = 1;
    int min_tokens = 0;         // of a long prompt, though the others have had their half
    bool must_advance = false;  // one token at least
    int lane = 0;
  };
  struct Chunk {
    int first_position = 0, num_wanted = 0, num_tokens = 0;
    double seconds = 0;
    int lane = 0;
  };

  PrefillBudget(SliceWorkOf slice_work, int block_tokens, int num_lanes = 1)
      : slice_work_(std::move(slice_work)),
        block_tokens_(block_tokens),
        lanes_(static_cast<size_t>(num_lanes)) {}

  void start(const Step& step);
  // Of a lane that has another time than Step::seconds. After start(), before it takes anything.
  void set_lane_seconds(int lane, double seconds);
  // Nothing is left that another prompt could begin with: of the lane, or of all.
  bool is_spent(int lane) const;
  bool is_spent() const;
  Chunk take(const Wish& wish);
  void take_more(Chunk& chunk);
  // The time limit made a chunk of this step shorter.
  bool cut_by_time() const { return cut_by_time_; }

 private:
  struct LaneTime {
    double limit = 0, left = 0, long_left = 0;
    bool has_advanced = false;
  };

  LaneTime& time_of(int lane) { return lanes_[static_cast<size_t>(lane)]; }
  bool is_timed() const { return step_.cost != nullptr; }
  double seconds_of(int first_position, int num_tokens) const;
  // The most tokens up to num_tokens that take no longer.
  int fitting(int first_position, int num_tokens, double seconds) const;
  int rounded(int first_position, int num_tokens) const;

  SliceWorkOf slice_work_;
  int block_tokens_;
  Step step_;
  int tokens_left_ = 0, long_tokens_left_ = 0;
  std::vector<LaneTime> lanes_;
  bool cut_by_time_ = false;
};

}  // namespace fathom::sched
