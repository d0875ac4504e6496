#include "runner/sim/collectives.h"

#include <algorithm>

#include "base/check.h"
#include "ops/draft.h"
#include "runner/step_layout.h"

namespace fathom::runner {
namespace {

void check_shape(const core::Batch& batch, size_t lane) {
  int32_t tokens = 0, most_drafts = 0;
  for (const core::SequenceSlice& slice : batch.slices) {
    tokens += slice.num_tokens;
    most_drafts = std::max(most_drafts, slice.num_drafts_to_propose);
  }
  const core::StepShape& shape = batch.shape;
  FATHOM_CHECK(shape.lane_tokens.at(lane) == tokens &&
                   shape.lane_slices.at(lane) == static_cast<int32_t>(batch.slices.size()) &&
                   shape.most_drafts >= most_drafts,
               "lane " << lane << " has " << tokens << " tokens in " << batch.slices.size()
                       << " slices in step " << batch.step_id << ", the step's shape says "
                       << shape.lane_tokens.at(lane) << " in " << shape.lane_slices.at(lane));
}

std::string collective_text(const std::vector<SimCollective>& entered, size_t index) {
  return index < entered.size() ? entered[index].describe() : "nothing";
}

}  // namespace

std::string SimCollective::describe() const {
  std::string text = name + " of rows from";
  for (const int64_t start : lane_starts) text += " " + std::to_string(start);
  return text;
}

std::vector<SimCollective> collectives_of(const core::Batch& batch, int lane,
                                          const DrafterInfo& drafter) {
  check_shape(batch, static_cast<size_t>(lane));
  const core::StepShape& shape = batch.shape;
  std::vector<SimCollective> all;
  if (!shape.has_tokens()) return all;
  all.push_back({.name = "forward pass", .lane_starts = lane_starts(shape.lane_tokens)});
  const int num_levels =
      shape.most_drafts > 0 && drafter.top_k > 1 ? drafter.num_steps : shape.most_drafts;
  for (int level = 0; level < num_levels; ++level)
    all.push_back(
        {.name = "draft pass " + std::to_string(level),
         .lane_starts =
             level == 0 ? lane_starts(shape.lane_tokens)
                        : lane_starts(shape.lane_slices, ops::draft_width(drafter.top_k, level))});
  return all;
}

void SimCollectives::enter(int lane, const Step& step) {
  last_step_.at(static_cast<size_t>(lane)) = step.step_id;
  num_entered_ += std::ssize(step.entered);
  if (step.step_id != first_.step_id || lane == first_lane_) {
    for (size_t other = 0; other < last_step_.size(); ++other)
      FATHOM_CHECK(last_step_[other] >= step.step_id - 1,
                   "lane " << lane << " is in step " << step.step_id << ", lane " << other
                           << " never came to step " << last_step_[other] + 1);
    first_ = step;
    first_lane_ = lane;
    return;
  }
  for (size_t i = 0; i < std::max(first_.entered.size(), step.entered.size()); ++i)
    FATHOM_CHECK(collective_text(step.entered, i) == collective_text(first_.entered, i),
                 "lane " << lane << " is in " << collective_text(step.entered, i) << " (number "
                         << i + 1 << " of step " << step.step_id << "), lane " << first_lane_
                         << " in " << collective_text(first_.entered, i));
}

}  // namespace fathom::runner
