#include "runner/ranked_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace fathom::runner {
namespace {

bool same_tokens(const core::SliceResult& a, const core::SliceResult& b) {
  if (a.tokens.size() != b.tokens.size()) return false;
  for (size_t i = 0; i < a.tokens.size(); ++i)
    if (a.tokens[i].token != b.tokens[i].token) return false;
  return true;
}

// "tokens 5, 17", "no token", or why there is none.
std::string sampled(const core::SliceResult& slice) {
  if (!slice.error.empty()) return "nothing (" + slice.error + ")";
  if (slice.tokens.empty()) return "no token";
  std::string text;
  for (const core::SampledToken& token : slice.tokens)
    text += (text.empty() ? "token " : ", ") + std::to_string(token.token);
  return text;
}

std::string slice_difference(const core::SliceResult& first, const core::SliceResult& other,
                             const TwoRanks& ranks) {
  const std::string a = "rank " + std::to_string(ranks.first),
                    b = "rank " + std::to_string(ranks.other);
  if (first.error.empty() != other.error.empty() || !same_tokens(first, other))
    return b + " sampled " + sampled(other) + ", " + a + " " + sampled(first);
  if (first.drafts != other.drafts || first.num_verified_drafts != other.num_verified_drafts)
    return b + " and " + a + " have other drafts";
  return "";
}

}  // namespace

std::string difference(const core::StepResult& first, const core::StepResult& other,
                       const TwoRanks& ranks) {
  if (first.step_id != other.step_id || first.slices.size() != other.slices.size())
    return "rank " + std::to_string(ranks.other) + " ran step " + std::to_string(other.step_id) +
           " of " + std::to_string(other.slices.size()) + " slices, rank " +
           std::to_string(ranks.first) + " step " + std::to_string(first.step_id) + " of " +
           std::to_string(first.slices.size());
  for (size_t i = 0; i < first.slices.size(); ++i) {
    const std::string what = slice_difference(first.slices[i], other.slices[i], ranks);
    if (!what.empty()) return what + " in step " + std::to_string(first.step_id);
  }
  return "";
}

RankedRunner::RankedRunner(std::vector<std::unique_ptr<Runner>> members, int num_lanes)
    : members_(std::move(members)) {
  FATHOM_CHECK(
      num_lanes >= 1 && !members_.empty() && members_.size() % static_cast<size_t>(num_lanes) == 0,
      members_.size() << " ranks in " << num_lanes << " lanes");
  info_ = members_[0]->info();
  sizes_ = {.num_lanes = num_lanes, .slots_per_lane = info_.max_slots};
  info_.num_lanes = num_lanes;
  info_.max_slots *= num_lanes;
}

// A rank that ends waits for its steps, and in them for the others.
RankedRunner::~RankedRunner() {
  for (const auto& member : members_) member->finish();
}

void RankedRunner::submit(const core::Batch& batch) {
  if (sizes_.num_lanes == 1) {
    for (const auto& member : members_) member->submit(batch);
    return;
  }
  LaneBatches lanes = split_batch(batch, sizes_);
  {
    const std::lock_guard lock(mutex_);
    in_flight_.push_back({batch.step_id, std::move(lanes.places)});
  }
  for (size_t rank = 0; rank < members_.size(); ++rank)
    members_[rank]->submit(lanes.batches[rank / ranks_per_lane()]);
}

void RankedRunner::compare(const core::StepResult& first, const core::StepResult& other,
                           int first_rank, int rank) {
  if (!desync_.empty()) return;
  desync_ = difference(first, other, {.first = first_rank, .other = rank});
  if (desync_.empty()) return;
  desync_ += ": the ranks of the model no longer agree, start the server again";
  FATHOM_LOG(kError, "runner", "ranks disagree", {{"what", desync_}});
}

core::StepResult RankedRunner::wait_for_lane(int lane) {
  const auto first_rank = static_cast<size_t>(lane) * ranks_per_lane();
  core::StepResult result = members_[first_rank]->wait();
  for (size_t rank = first_rank + 1; rank < first_rank + ranks_per_lane(); ++rank)
    compare(result, members_[rank]->wait(), static_cast<int>(first_rank), static_cast<int>(rank));
  return result;
}

core::StepResult RankedRunner::wait() {
  std::vector<core::StepResult> lanes;
  for (int lane = 0; lane < sizes_.num_lanes; ++lane) lanes.push_back(wait_for_lane(lane));
  core::StepResult result;
  if (sizes_.num_lanes == 1) {
    result = std::move(lanes[0]);
  } else {
    StepInFlight step;
    {
      const std::lock_guard lock(mutex_);
      step = std::move(in_flight_.front());
      in_flight_.pop_front();
    }
    result = join_results(step.places, sizes_, std::move(lanes));
  }
  if (desync_.empty()) return result;
  for (core::SliceResult& slice : result.slices) slice = {.slot = slice.slot, .error = desync_};
  return result;
}

void RankedRunner::set_masks(core::StepMasks masks) {
  if (sizes_.num_lanes == 1) {
    for (size_t rank = 1; rank < members_.size(); ++rank) members_[rank]->set_masks(masks);
    return members_[0]->set_masks(std::move(masks));
  }
  std::vector<core::StepMasks> lanes;
  {
    const std::lock_guard lock(mutex_);
    const auto step = std::find_if(in_flight_.begin(), in_flight_.end(),
                                   [&](const auto& each) { return each.step_id == masks.step_id; });
    FATHOM_CHECK(step != in_flight_.end(), "masks of step " << masks.step_id);
    lanes = split_masks(std::move(masks), step->places, sizes_.num_lanes);
  }
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const core::StepMasks& lane = lanes[rank / ranks_per_lane()];
    if (!lane.masks.empty()) members_[rank]->set_masks(lane);
  }
}

core::SliceWork RankedRunner::slice_work(int num_tokens, int64_t kv_begin) const {
  return members_[0]->slice_work(num_tokens, kv_begin);
}

}  // namespace fathom::runner
