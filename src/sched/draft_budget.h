#pragma once
// DraftBudget: how many drafts the decodes of one step may verify besides their own tokens.
//
//   DraftBudget budget;
//   budget.start({.max_batch_tokens = 8192, .num_running = 40, .prompts_wait = true});
//   int num_drafts = budget.take(3);              // at most 3, what is left
//
// Every running sequence keeps a query token of its own, so all can decode in every step. While prompts wait for
// the rest of the step, drafts get at most half of it: a guess never holds up what is certain to be wanted.
// Plain data of one plan.

#include <algorithm>

namespace fathom::sched {

class DraftBudget {
 public:
  struct Step {
    int max_batch_tokens = 0, num_running = 0;
    bool prompts_wait = false;  // one is being computed or waits for admission
  };

  void start(const Step& step) {
    const int num_spare = std::max(0, step.max_batch_tokens - step.num_running);
    num_left_ = step.prompts_wait ? num_spare / 2 : num_spare;
  }
  int take(int num_wanted) {
    const int num_taken = std::clamp(num_wanted, 0, num_left_);
    num_left_ -= num_taken;
    return num_taken;
  }
  void give_back(int num_drafts) { num_left_ += num_drafts; }

 private:
  int num_left_ = 0;
};

}  // namespace fathom::sched
