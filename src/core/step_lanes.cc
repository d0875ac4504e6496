#include "core/step_lanes.h"

#include <algorithm>
#include <utility>

namespace fathom::core {
namespace {

StepShape shape_of(const std::vector<Batch>& batches) {
  StepShape shape;
  bool all_go_on = true;
  for (const Batch& batch : batches) {
    int32_t tokens = 0;
    for (const SequenceSlice& slice : batch.slices) {
      tokens += slice.num_tokens;
      shape.most_drafts = std::max(shape.most_drafts, slice.num_drafts_to_propose);
      shape.going_on_tokens = std::max(shape.going_on_tokens, slice.num_tokens);
      all_go_on = all_go_on && slice.tokens.empty();
    }
    shape.lane_tokens.push_back(tokens);
    shape.lane_slices.push_back(static_cast<int32_t>(batch.slices.size()));
  }
  if (!all_go_on) shape.going_on_tokens = 0;
  return shape;
}

}  // namespace

LaneBatches split_batch(const Batch& batch, const LaneSizes& sizes) {
  LaneBatches lanes;
  lanes.batches.resize(static_cast<size_t>(sizes.num_lanes));
  for (Batch& each : lanes.batches) each.step_id = batch.step_id;
  const auto lane_of = [&](int32_t slot) -> Batch& {
    return lanes.batches.at(static_cast<size_t>(slot / sizes.slots_per_lane));
  };
  const auto put = [&](auto& to, const auto& of_slot) {
    to.push_back(of_slot);
    to.back().slot %= sizes.slots_per_lane;
  };
  for (const SlotAdmission& admission : batch.admissions)
    put(lane_of(admission.slot).admissions, admission);
  for (const BlockAppend& append : batch.block_appends)
    put(lane_of(append.slot).block_appends, append);
  for (const SequenceSlice& slice : batch.slices) {
    std::vector<SequenceSlice>& to = lane_of(slice.slot).slices;
    lanes.places.push_back(
        {.lane = slice.slot / sizes.slots_per_lane, .slice_idx = static_cast<int32_t>(to.size())});
    put(to, slice);
  }
  for (const int32_t slot : batch.releases)
    lane_of(slot).releases.push_back(slot % sizes.slots_per_lane);
  const StepShape shape = shape_of(lanes.batches);
  for (Batch& each : lanes.batches) each.shape = shape;
  return lanes;
}

std::vector<StepMasks> split_masks(StepMasks masks, const std::vector<SlicePlace>& places,
                                   int num_lanes) {
  std::vector<StepMasks> lanes(static_cast<size_t>(num_lanes));
  for (StepMasks& each : lanes) each.step_id = masks.step_id;
  for (SliceMask& mask : masks.masks) {
    const SlicePlace& place = places.at(static_cast<size_t>(mask.slice_idx));
    mask.slice_idx = place.slice_idx;
    lanes[static_cast<size_t>(place.lane)].masks.push_back(std::move(mask));
  }
  return lanes;
}

StepResult join_results(const std::vector<SlicePlace>& places, const LaneSizes& sizes,
                        std::vector<StepResult> results) {
  const auto slowest = std::max_element(results.begin(), results.end(), [](auto& a, auto& b) {
    return a.wall_seconds < b.wall_seconds;
  });
  StepResult joined{.step_id = slowest->step_id,
                    .wall_seconds = slowest->wall_seconds,
                    .forward_seconds = slowest->forward_seconds,
                    .sampling_seconds = slowest->sampling_seconds,
                    .mask_wait_seconds = slowest->mask_wait_seconds};
  joined.slices.reserve(places.size());
  for (const SlicePlace& place : places) {
    StepResult& lane = results[static_cast<size_t>(place.lane)];
    joined.slices.push_back(std::move(lane.slices[static_cast<size_t>(place.slice_idx)]));
    joined.slices.back().slot += place.lane * sizes.slots_per_lane;
  }
  return joined;
}

}  // namespace fathom::core
