#include "sched/step_cost.h"

#include <algorithm>
#include <cmath>

namespace fathom::sched {
namespace {

// Farther than this from the fit nothing is believed before the fit has followed.
constexpr double kMostSlowdown = 8;
constexpr double kErrorDecay = 0.95;

CostFit<3>::Vector decode_vector(const StepWork& work) {
  return {work.num_decodes > 0 ? 1.0 : 0.0, work.decodes.linear,
          work.decodes.absorbed + work.decodes.expanded};
}

CostFit<4>::Vector prompt_vector(const StepWork& work) {
  return {work.num_chunks > 0 ? 1.0 : 0.0, work.prompts.linear, work.prompts.absorbed,
          work.prompts.expanded};
}

}  // namespace

StepCost::StepCost(double token_macs, int start_tokens)
    : decodes_({start_tokens * std::max(1.0, token_macs), 1, 1}),
      prompts_({start_tokens * std::max(1.0, token_macs), 1, 1, 1}) {}

double StepCost::raw_decode_seconds(const StepWork& work) const {
  if (work.num_decodes == 0) return 0;
  if (decodes_.num_observed() > 0) return decodes_.predict(decode_vector(work));
  // Never seen without prompts: as if they were some.
  return prompts_.predict({0, work.decodes.linear, work.decodes.absorbed, work.decodes.expanded});
}

double StepCost::raw_seconds(const StepWork& work) const {
  return raw_decode_seconds(work) + prompts_.predict(prompt_vector(work));
}

void StepCost::observe(const StepWork& work, double seconds) {
  if (work.num_chunks + work.num_decodes == 0) return;
  const double predicted = this->seconds(work);
  if (predicted > 0) {
    const double off = std::min(1.0, std::abs(seconds / predicted - 1));
    error_ = error_ == 0 ? off : kErrorDecay * error_ + (1 - kErrorDecay) * off;
  }
  learn(work, seconds);
  recent_[static_cast<size_t>(num_observed_ % kRecent)] = {work, seconds};
  ++num_observed_;
  update_slowdown();
}

void StepCost::learn(const StepWork& work, double seconds) {
  const double scale = std::max(seconds, this->seconds(work));
  if (work.num_chunks == 0) return decodes_.observe(decode_vector(work), seconds, scale);
  const double of_prompts = seconds - std::min(seconds, decode_seconds(work));
  prompts_.observe(prompt_vector(work), of_prompts, scale);
}

void StepCost::update_slowdown() {
  std::array<double, kRecent> ratios{};
  size_t num_ratios = 0;
  for (size_t i = 0; i < static_cast<size_t>(std::min<int64_t>(num_observed_, kRecent)); ++i) {
    const double fitted = raw_seconds(recent_[i].work);
    if (fitted > 0) ratios[num_ratios++] = recent_[i].seconds / fitted;
  }
  if (num_ratios < kRecent) return;
  const auto middle = ratios.begin() + kRecent / 2;
  std::nth_element(ratios.begin(), middle, ratios.end());
  slowdown_ = std::clamp(*middle, 1 / kMostSlowdown, kMostSlowdown);
}

}  // namespace fathom::sched
