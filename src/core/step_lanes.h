#pragma once
// A step of all lanes taken apart into the batch of each, and put together again from their results. A lane numbers its
// slots from 0; every lane's batch has the shape of the whole step, so a lane without work knows what it takes part in.
//
//   LaneBatches lanes = split_batch(batch, {.num_lanes = 2, .slots_per_lane = 32});
//   runners[l]->submit(lanes.batches[l]);
//   std::vector<StepMasks> of_lanes = split_masks(std::move(masks), lanes.places, 2);
//   StepResult result = join_results(lanes.places, sizes, std::move(results));
//
// Plain data and pure functions.

#include <cstdint>
#include <vector>

#include "core/batch.h"

namespace fathom::core {

struct LaneSizes {
  int num_lanes = 1, slots_per_lane = 0;
};

// Where a slice of the step went.
struct SlicePlace {
  int32_t lane = 0, slice_idx = 0;  // in that lane's batch
};

struct LaneBatches {
  std::vector<Batch> batches;      // [lane]
  std::vector<SlicePlace> places;  // [slice of the step]
};

LaneBatches split_batch(const Batch& batch, const LaneSizes& sizes);
// [lane]; without an entry for lanes that want none. places: of the step's slices.
std::vector<StepMasks> split_masks(StepMasks masks, const std::vector<SlicePlace>& places,
                                   int num_lanes);
// results: [lane]. Times are those of the lane that took longest.
StepResult join_results(const std::vector<SlicePlace>& places, const LaneSizes& sizes,
                        std::vector<StepResult> results);

}  // namespace fathom::core
