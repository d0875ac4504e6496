#pragma once
// SimCost: how long the steps of a simulated runner take. It has a truth of its own, which is not what slice_work()
// tells: each kind of work runs at a speed of its own, steps cost something whatever they compute, times scatter, some
// steps are held up, and the machine may get slower at some point.
//
//   SimCost cost({.step_us = 500, .noise = 0.1});
//   cost.add(/*num_tokens=*/64, /*kv_begin=*/1024, /*is_prompt=*/true);  // for every slice
//   double seconds = cost.end_step(step_id);
//
// The work is that of a small model whose heads are those of DeepSeek-V3: slices of at most 64 tokens attend in the
// form with fewer multiply-adds, longer ones expanded. The same steps take the same time. Plain data of one thread.

#include <cstdint>

#include "core/slice_work.h"

namespace fathom::runner {

struct SimCostConfig {
  double step_us = 0;         // of every step with slices; 0 = no times are told
  double prompt_step_us = 0;  // more when it computes prompt tokens
  int step_start_tokens = core::kStepStartTokens;  // what is told of it
  // 1e9 multiply-adds per second: of chunks by kind, and of decodes.
  double linear_rate = 20, absorbed_rate = 50, expanded_rate = 60, decode_rate = 25;
  double noise = 0;       // times are off by up to this part, either way
  int hiccup_one_in = 0;  // so many steps; 0 = none
  double hiccup_factor = 10;
  int64_t slow_from_step = 0;  // from here on
  double slowdown = 1;         // everything takes so much longer
  uint64_t seed = 1;
};

class SimCost {
 public:
  explicit SimCost(const SimCostConfig& config) : config_(config) {}

  bool is_set() const { return config_.step_us > 0; }
  core::SliceWork slice_work(int num_tokens, int64_t kv_begin) const;
  void add(int num_tokens, int64_t kv_begin, bool is_prompt);
  // Of what was added since the last call; 0 when that is nothing.
  double end_step(int64_t step_id);

 private:
  SimCostConfig config_;
  int num_slices_ = 0;
  bool has_prompts_ = false;
  double seconds_ = 0;
};

}  // namespace fathom::runner
