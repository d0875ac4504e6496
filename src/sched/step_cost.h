#pragma once
// StepCost: how long a step will take, from what it computes and what steps took before.
//
//   StepCost cost(runner.slice_work(1, 0).linear, runner.info().step_start_tokens);
//   StepWork work;  work.add_decode(...);  work.add_prefill(...);
//   double seconds = cost.seconds(work);
//   ...  cost.observe(work, result.wall_seconds);           // after every step, in order
//
// A step costs what its decodes cost and what its chunks of prompts cost, each a constant and so much per multiply-add
// of its kinds. Decodes are learnt from steps without prompts, prompts from what steps with prompts take longer. Both
// follow slowly; a factor on top, the median of the last steps, follows at once when the machine gets slower
// for everything. Before prompts were measured knows_prompts() is false and they cost 0.
// The same calls give the same answers. One thread uses it.

#include <array>
#include <cstdint>

#include "core/slice_work.h"
#include "sched/cost_fit.h"

namespace fathom::sched {

// What the slices of one step compute.
struct StepWork {
  core::SliceWork prompts{}, decodes{};
  int num_chunks = 0, num_decodes = 0;  // slices of each kind

  void add_prompt(const core::SliceWork& slice) {
    prompts += slice;
    ++num_chunks;
  }
  void add_decode(const core::SliceWork& slice) {
    decodes += slice;
    ++num_decodes;
  }
};

class StepCost {
 public:
  // token_macs: multiply-adds of one token without its attention; they scale what is not known yet. start_tokens: what
  // a step costs whatever it computes, in tokens, until steps of different sizes were measured. Too few of them and
  // what small chunks take is put down to their tokens: then none is ever planned that would show otherwise.
  StepCost(double token_macs, int start_tokens);

  double seconds(const StepWork& work) const { return slowdown_ * raw_seconds(work); }
  // For plans: of the decodes of a step,
  double decode_seconds(const StepWork& work) const { return slowdown_ * raw_decode_seconds(work); }
  // of computing prompts at all, and of each slice of one. A kind of attention that was hardly measured counts more.
  double prompt_start_seconds() const { return slowdown_ * prompts_.predict({1, 0, 0, 0}); }
  double prompt_seconds(const core::SliceWork& slice) const {
    return slowdown_ * prompts_.predict_at_most({0, slice.linear, slice.absorbed, slice.expanded});
  }
  bool knows_prompts() const { return prompts_.num_observed() > 0; }

  // REQUIRES: seconds > 0, the runner's own time for the step.
  void observe(const StepWork& work, double seconds);
  // How far predictions were off lately: the mean of |measured / predicted - 1|, each at most 1.
  double error() const { return error_; }

 private:
  static constexpr int kRecent = 8;
  struct Recent {
    StepWork work;
    double seconds = 0;
  };

  double raw_decode_seconds(const StepWork& work) const;
  double raw_seconds(const StepWork& work) const;
  void learn(const StepWork& work, double seconds);
  void update_slowdown();

  CostFit<3> decodes_;  // one step of them, linear, attention
  CostFit<4> prompts_;  // one step of them, linear, absorbed, expanded
  std::array<Recent, kRecent> recent_{};
  int64_t num_observed_ = 0;
  double slowdown_ = 1, error_ = 0;
};

}  // namespace fathom::sched
