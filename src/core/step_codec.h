#pragma once
// What goes between a planner and the runners of another process, as bytes: the batch of one lane, its masks, its
// result.
//
//   link.send(Link::kPlans, encode(batch));
//   Result<Batch> batch = decode_batch(bytes, limits);
//   if (!batch) fail(batch.error().message);     // "slice 3 has slot 70, must be in [0, 64)"
//
// Bytes are taken as a whole or refused: those of another version, cut, longer, or with a value that the lane cannot
// have. What depends on the steps before (which slots are free, which blocks a slot has) is the planner's word, as
// it is to a runner in its own process. Pure functions.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/batch.h"

namespace fathom::core {

// What values of one lane's steps may be.
struct StepLimits {
  int vocab_size = 0;
  int lane = 0, num_lanes = 1;
  int num_slots = 0;         // of the lane
  int max_batch_tokens = 0;  // of all lanes together
  int64_t max_context_tokens = 0;
  int max_drafts = 0;             // of a slot
  std::vector<int> num_blocks{};  // of each KV group
};

std::vector<std::byte> encode(const Batch& batch);
std::vector<std::byte> encode(const StepMasks& masks);
std::vector<std::byte> encode(const StepResult& result);

// kInvalidArgument: which value breaks which rule.
Result<Batch> decode_batch(std::span<const std::byte> bytes, const StepLimits& limits);
Result<StepMasks> decode_masks(std::span<const std::byte> bytes, const StepLimits& limits);
Result<StepResult> decode_result(std::span<const std::byte> bytes, const StepLimits& limits);

}  // namespace fathom::core
