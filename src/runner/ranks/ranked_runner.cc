#include "runner/ranks/ranked_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "core/request.h"

namespace fathom::runner {
namespace {

std::vector<RankedMember> one_rank_each(std::vector<std::unique_ptr<Runner>> runners,
                                        int num_lanes) {
  FATHOM_CHECK(num_lanes >= 1 && runners.size() % static_cast<size_t>(num_lanes) == 0,
               runners.size() << " ranks in " << num_lanes << " lanes");
  const int per_lane = static_cast<int>(runners.size()) / num_lanes;
  std::vector<RankedMember> members;
  for (std::unique_ptr<Runner>& runner : runners) {
    const int rank = static_cast<int>(members.size());
    members.push_back({.runner = std::move(runner), .lane = rank / per_lane, .rank = rank});
  }
  return members;
}

}  // namespace

RankedRunner::RankedRunner(std::vector<RankedMember> members, int num_lanes,
                           std::function<std::string()> group_failure)
    : members_(std::move(members)), group_failure_(std::move(group_failure)) {
  FATHOM_CHECK(num_lanes >= 1 && !members_.empty() && members_[0].rank == 0,
               members_.size() << " ranks in " << num_lanes << " lanes");
  info_ = members_[0].runner->info();
  sizes_ = {.num_lanes = num_lanes, .slots_per_lane = info_.max_slots};
  info_.num_lanes = num_lanes;
  info_.max_slots *= num_lanes;
}

RankedRunner::RankedRunner(std::vector<std::unique_ptr<Runner>> members, int num_lanes)
    : RankedRunner(one_rank_each(std::move(members), num_lanes), num_lanes, {}) {}

// A rank that ends waits for its steps, and in them for the others.
RankedRunner::~RankedRunner() {
  FATHOM_CHECK(!is_stuck_, failure());
  for (const RankedMember& member : members_) member.runner->finish();
  for (RankedMember& member : members_) member.runner.reset();
}

int RankedRunner::in_flight() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(in_flight_.size());
}

std::string RankedRunner::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

void RankedRunner::set_failure(const std::string& why) {
  const MutexLock lock(mutex_);
  if (!failure_.empty()) return;
  failure_ = why;
  if (!in_flight_.empty()) failure_ += " in step " + std::to_string(in_flight_.front().step_id);
  failure_ += is_stuck_ ? ": the ranks of the model cannot go on, "
                        : ": the ranks of the model no longer agree, ";
  failure_ += core::kStartAgain;
  FATHOM_LOG(kError, "runner", "ranks have failed", {{"what", failure_}});
}

void RankedRunner::fail(const std::string& why) {
  is_stuck_ = true;
  set_failure(why);
  for (const RankedMember& member : members_) member.runner->give_up();
}

void RankedRunner::submit(const core::Batch& batch) {
  ++next_step_id_;
  StepInFlight step{.step_id = batch.step_id};
  for (const core::SequenceSlice& slice : batch.slices) step.slots.push_back(slice.slot);
  core::LaneBatches lanes;
  if (sizes_.num_lanes > 1) {
    lanes = core::split_batch(batch, sizes_);
    step.places = std::move(lanes.places);
  }
  {
    const MutexLock lock(mutex_);
    in_flight_.push_back(std::move(step));
    if (!failure_.empty()) return;
  }
  for (const RankedMember& member : members_)
    member.runner->submit(lanes.batches.empty() ? batch
                                                : lanes.batches[static_cast<size_t>(member.lane)]);
}

void RankedRunner::compare(const core::StepResult& first, const core::StepResult& other,
                           const core::TwoRanks& ranks) {
  if (!failure().empty()) return;
  std::string what = group_failure_ ? group_failure_() : "";
  if (what.empty()) what = core::difference(first, other, ranks);
  if (!what.empty()) set_failure(what);
}

core::StepResult RankedRunner::wait_for(const RankedMember& member) {
  core::StepResult result = member.runner->wait();
  if (const std::string why = member.runner->failure(); !why.empty()) set_failure(why);
  return result;
}

core::StepResult RankedRunner::wait_for_lane(int lane) {
  const RankedMember* first = nullptr;
  core::StepResult result;
  for (const RankedMember& member : members_) {
    if (member.lane != lane) continue;
    if (first == nullptr) {
      first = &member;
      result = wait_for(member);
    } else {
      compare(result, wait_for(member), {.first = first->rank, .other = member.rank});
    }
  }
  return result;
}

core::StepResult RankedRunner::wait() {
  std::vector<core::StepResult> lanes;
  for (int lane = 0; lane < sizes_.num_lanes && failure().empty(); ++lane)
    lanes.push_back(wait_for_lane(lane));
  if (const std::string why = group_failure_ ? group_failure_() : ""; !why.empty())
    set_failure(why);
  MutexLock lock(mutex_);
  const StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (!failure_.empty()) {
    core::StepResult result{.step_id = step.step_id};
    for (const int32_t slot : step.slots)
      result.slices.push_back({.slot = slot, .error = failure_});
    return result;
  }
  lock.unlock();
  if (sizes_.num_lanes == 1) return std::move(lanes[0]);
  return core::join_results(step.places, sizes_, std::move(lanes));
}

void RankedRunner::share_masks(SharedMasks masks) {
  std::vector<SharedMasks> lanes;
  {
    const MutexLock lock(mutex_);
    if (!failure_.empty()) return;
    const int64_t step_id = masks->step_id;
    const auto step = std::find_if(in_flight_.begin(), in_flight_.end(),
                                   [&](const auto& each) { return each.step_id == step_id; });
    FATHOM_CHECK(step != in_flight_.end(), "masks of step " << step_id);
    if (sizes_.num_lanes == 1) {
      lanes.push_back(std::move(masks));
    } else {
      for (auto& of_lane : core::split_masks(*masks, step->places, sizes_.num_lanes))
        lanes.push_back(std::make_shared<const core::StepMasks>(std::move(of_lane)));
    }
  }
  for (const RankedMember& member : members_) {
    const SharedMasks& of_lane = lanes[static_cast<size_t>(member.lane)];
    if (!of_lane->masks.empty()) member.runner->share_masks(of_lane);
  }
}

core::SliceWork RankedRunner::slice_work(int num_tokens, int64_t kv_begin) const {
  return members_[0].runner->slice_work(num_tokens, kv_begin);
}

}  // namespace fathom::runner
