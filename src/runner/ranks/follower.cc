#include "runner/ranks/follower.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/memory.h"
#include "base/token_mask.h"
#include "core/step_difference.h"

namespace fathom::runner {
namespace {

using comm::Link;
using comm::LinkFailure;

// Index and words of the masks that a batch wants, by index.
std::vector<std::pair<int32_t, size_t>> masks_wanted_by(const core::Batch& batch, int vocab_size) {
  const auto row_words = static_cast<size_t>(num_mask_words(vocab_size));
  std::vector<std::pair<int32_t, size_t>> wanted;
  for (size_t i = 0; i < batch.slices.size(); ++i)
    if (batch.slices[i].wants_mask)
      wanted.emplace_back(static_cast<int32_t>(i),
                          static_cast<size_t>(batch.slices[i].num_sampled_rows()) * row_words);
  return wanted;
}

std::vector<std::pair<int32_t, size_t>> masks_of(const core::StepMasks& masks) {
  std::vector<std::pair<int32_t, size_t>> brought;
  for (const core::SliceMask& mask : masks.masks)
    brought.emplace_back(mask.slice_idx, mask.words.size());
  std::sort(brought.begin(), brought.end());
  return brought;
}

template <class T>
T taken(Result<T> result) {
  if (!result) throw LinkFailure(result.error().message);
  return *std::move(result);
}

}  // namespace

Follower::Follower(Link& head, const std::vector<FollowedLane>& lanes, int num_lanes)
    : head_(head), lanes_(lanes.size()) {
  for (size_t i = 0; i < lanes.size(); ++i) {
    lanes_[i].of = lanes[i];
    lanes_[i].limits = step_limits(lanes[i].runners.at(0)->info(), lanes[i].lane, num_lanes);
  }
}

void Follower::fail(const std::string& why) {
  {
    const MutexLock lock(mutex_);
    if (is_done_) return;
    if (failure_.empty()) failure_ = why;
  }
  changed_.notify_all();
  head_.fail(why);
  for (const Lane& lane : lanes_)
    for (Runner* runner : lane.of.runners) runner->give_up();
}

// By a thread of the run: what it throws ends the run.
void Follower::run_part(void (Follower::*part)()) {
  try {
    (this->*part)();
  } catch (const LinkFailure& failure) {
    fail(failure.what());
  }
}

std::string Follower::run() {
  const auto start = [&](void (Follower::*part)()) {
    return std::thread([this, part] {
      const memory::MustSucceed scope;
      run_part(part);
    });
  };
  std::thread masks = start(&Follower::take_masks), results = start(&Follower::send_results);
  run_part(&Follower::take_plans);
  results.join();
  wait_for_end();
  masks.join();
  const MutexLock lock(mutex_);
  return failure_;
}

// Of lanes that have all ended here. The head waits for those of other nodes too, which this one's links are for.
void Follower::wait_for_end() {
  try {
    while (taken(decode_node_message(head_.receive(Link::kPlans))).kind !=
           NodeMessageKind::kNodeEnds) {
    }
  } catch (const LinkFailure&) {
    // It has ended without a word, which is as good.
  }
  is_over_ = true;
}

bool Follower::has_failed() {
  const MutexLock lock(mutex_);
  return !failure_.empty();
}

Follower::Lane& Follower::lane_of(const NodeMessage& message) {
  for (Lane& lane : lanes_)
    if (lane.of.lane == message.lane) return lane;
  throw LinkFailure("a message is for lane " + std::to_string(message.lane) +
                    ", of which no rank is here");
}

void Follower::take_plans() {
  for (size_t num_ended = 0; num_ended < lanes_.size();) {
    const NodeMessage message = taken(decode_node_message(head_.receive(Link::kPlans)));
    Lane& lane = lane_of(message);
    if (lane.has_ended) throw LinkFailure("a message is for a lane that has ended");
    if (message.kind == NodeMessageKind::kLaneEnds) {
      lane.has_ended = true;
      ++num_ended;
      for (Runner* runner : lane.of.runners) runner->finish();
    } else {
      take_plan(lane, message);
    }
  }
  {
    const MutexLock lock(mutex_);
    all_planned_ = true;
  }
  changed_.notify_all();
}

void Follower::take_plan(Lane& lane, const NodeMessage& message) {
  if (message.kind != NodeMessageKind::kPlan) throw LinkFailure("what came is no plan");
  const core::Batch batch = taken(core::decode_batch(message.payload, lane.limits));
  {
    const MutexLock lock(mutex_);
    if (batch.step_id != lane.num_planned ||
        lane.num_planned - lane.num_done >= Runner::kMaxInFlight)
      throw LinkFailure("a plan is of step " + std::to_string(batch.step_id) + ", expected step " +
                        std::to_string(lane.num_planned) + " behind at most " +
                        std::to_string(Runner::kMaxInFlight - 1) + " in flight");
    if (auto wanted = masks_wanted_by(batch, lane.limits.vocab_size); !wanted.empty())
      lane.wanted.push_back({.step_id = batch.step_id, .slices = std::move(wanted)});
  }
  for (Runner* runner : lane.of.runners) runner->submit(batch);
  {
    const MutexLock lock(mutex_);
    ++lane.num_planned;
  }
  changed_.notify_all();
}

void Follower::take_masks() {
  constexpr auto kPiece = std::chrono::milliseconds(100);
  while (!is_over_ && !has_failed()) {
    const auto bytes = head_.receive_for(Link::kMasks, kPiece);
    if (!bytes) continue;
    const NodeMessage message = taken(decode_node_message(*bytes));
    Lane& lane = lane_of(message);
    if (message.kind != NodeMessageKind::kMasks) throw LinkFailure("what came is no mask");
    const auto masks = std::make_shared<const core::StepMasks>(
        taken(core::decode_masks(message.payload, lane.limits)));
    if (!wants(lane, *masks)) throw LinkFailure("masks came that their step does not want");
    for (Runner* runner : lane.of.runners) runner->share_masks(masks);
  }
}

// Once for each step that does. A mask may come before the plan of its step.
bool Follower::wants(Lane& lane, const core::StepMasks& masks) {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() FATHOM_REQUIRES(mutex_) {
    return !failure_.empty() || all_planned_ || masks.step_id < lane.num_planned;
  });
  const auto found =
      std::find_if(lane.wanted.begin(), lane.wanted.end(),
                   [&](const WantedMasks& wanted) { return wanted.step_id == masks.step_id; });
  if (found == lane.wanted.end() || found->slices != masks_of(masks)) return false;
  lane.wanted.erase(found);
  return true;
}

// Step by step, and in each lane by lane.
void Follower::send_results() {
  while (true)
    for (Lane& lane : lanes_) {
      MutexLock lock(mutex_);
      changed_.wait(lock, [&]() FATHOM_REQUIRES(mutex_) {
        return !failure_.empty() || all_planned_ || lane.num_done < lane.num_planned;
      });
      if (!failure_.empty()) return;
      const bool is_last = lane.num_done == lane.num_planned;
      lock.unlock();
      if (is_last) return send_ends();
      send_result(lane);
    }
}

void Follower::send_result(Lane& lane) {
  const core::StepResult first = lane.of.runners[0]->wait();
  std::string differs;
  for (size_t i = 1; i < lane.of.runners.size(); ++i) {
    const core::StepResult other = lane.of.runners[i]->wait();
    if (differs.empty())
      differs = core::difference(
          first, other,
          {.first = lane.of.first_rank, .other = lane.of.first_rank + static_cast<int>(i)});
  }
  {
    const MutexLock lock(mutex_);
    if (!failure_.empty()) return;  // a runner has given up
    ++lane.num_done;
  }
  head_.send(Link::kResults, encode({.kind = NodeMessageKind::kResult,
                                     .lane = lane.of.lane,
                                     .text = std::move(differs),
                                     .payload = core::encode(first)}));
}

void Follower::send_ends() {
  {
    const MutexLock lock(mutex_);
    is_done_ = true;
  }
  for (const Lane& lane : lanes_)
    head_.send(Link::kResults, encode({.kind = NodeMessageKind::kLaneEnds, .lane = lane.of.lane}));
}

}  // namespace fathom::runner
