#include "runner/ranks/remote_runner.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace fathom::runner {

using comm::Link;
using comm::LinkFailure;

RemoteRunner::RemoteRunner(Link& link, const Place& place)
    : link_(link),
      place_(place),
      info_(place.like->info()),
      limits_(step_limits(info_, place.lane, place.num_lanes)) {}

void RemoteRunner::finish() {
  if (std::exchange(has_finished_, true)) return;
  link_.send(Link::kPlans, encode({.kind = NodeMessageKind::kLaneEnds, .lane = place_.lane}));
}

RemoteRunner::~RemoteRunner() {
  finish();
  try {
    NodeMessage message;
    do message = receive();
    while (message.kind != NodeMessageKind::kLaneEnds || message.lane != place_.lane);
  } catch (const LinkFailure&) {
    // Its node has ended in another way.
  }
}

std::string RemoteRunner::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

void RemoteRunner::submit(const core::Batch& batch) {
  FATHOM_CHECK(in_flight() < kMaxInFlight, in_flight() << " steps in flight");
  FATHOM_CHECK(batch.step_id == next_step_id_,
               "step " << batch.step_id << ", expected " << next_step_id_);
  ++next_step_id_;
  StepInFlight step{.step_id = batch.step_id};
  for (const core::SequenceSlice& slice : batch.slices) step.slots.push_back(slice.slot);
  in_flight_.push_back(std::move(step));
  link_.send(Link::kPlans, encode({.kind = NodeMessageKind::kPlan,
                                   .lane = place_.lane,
                                   .payload = core::encode(batch)}));
}

void RemoteRunner::share_masks(SharedMasks masks) {
  link_.send(Link::kMasks, encode({.kind = NodeMessageKind::kMasks,
                                   .lane = place_.lane,
                                   .payload = core::encode(*masks)}));
}

// In pieces, since nobody sends what another runner's failure has ended.
NodeMessage RemoteRunner::receive() {
  constexpr auto kPiece = std::chrono::milliseconds(100);
  std::optional<std::vector<std::byte>> bytes;
  while (!bytes) {
    if (has_given_up_) throw LinkFailure("another rank has failed");
    bytes = link_.receive_for(Link::kResults, kPiece);
  }
  Result<NodeMessage> message = decode_node_message(*bytes);
  if (!message) throw LinkFailure(message.error().message);
  return *std::move(message);
}

core::StepResult RemoteRunner::receive_result(const StepInFlight& step) {
  NodeMessage message = receive();
  if (message.kind != NodeMessageKind::kResult || message.lane != place_.lane)
    throw LinkFailure("what came is no result of lane " + std::to_string(place_.lane));
  Result<core::StepResult> result = core::decode_result(message.payload, limits_);
  if (!result) throw LinkFailure(result.error().message);
  const auto same_slot = [](const core::SliceResult& slice, int32_t slot) {
    return slice.slot == slot;
  };
  if (result->step_id != step.step_id ||
      !std::equal(result->slices.begin(), result->slices.end(), step.slots.begin(),
                  step.slots.end(), same_slot))
    throw LinkFailure("a result is of step " + std::to_string(result->step_id) +
                      " or of other slices, expected step " + std::to_string(step.step_id));
  const MutexLock lock(mutex_);
  if (failure_.empty()) failure_ = std::move(message.text);
  return *std::move(result);
}

core::StepResult RemoteRunner::wait() {
  FATHOM_CHECK(!in_flight_.empty(), "no step in flight");
  const StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  try {
    return receive_result(step);
  } catch (const LinkFailure& failure) {
    place_.on_failure(failure.what());
    return {.step_id = step.step_id};
  }
}

}  // namespace fathom::runner
