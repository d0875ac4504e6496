#pragma once
// What the node with the planner (the head) and a node without one (a follower) say to each other, one message each.
//
//   link.send(Link::kPlans, encode({.kind = NodeMessageKind::kPlan, .lane = 1, .payload = core::encode(batch)}));
//   Result<NodeMessage> message = decode_node_message(bytes);
//   core::decode_batch(message->payload, limits)
//
// The head sends plans and the ends of lanes on kPlans, masks on kMasks; a follower sends results on kResults, and both
// how large a cache may be there. Pure functions.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "core/step_codec.h"
#include "runner/runner.h"

namespace fathom::runner {

enum class NodeMessageKind : uint8_t {
  kCacheBlocks,  // number: that a node can have, then that all take
  kPlan,         // payload: a core::Batch
  kMasks,        // payload: core::StepMasks
  kResult,  // payload: a core::StepResult; text: how the lane's ranks of the node differ, empty = they do not
  kLaneEnds,  // no plan follows for the lane; the answer says that its last step is done
  kNodeEnds,  // all lanes of all nodes have ended
};

struct NodeMessage {
  NodeMessageKind kind = NodeMessageKind::kCacheBlocks;
  int32_t lane = 0;
  int64_t number = 0;
  std::string text{};
  std::vector<std::byte> payload{};
};

std::vector<std::byte> encode(const NodeMessage& message);
// kInvalidArgument: it is none.
Result<NodeMessage> decode_node_message(std::span<const std::byte> bytes);

// Of a lane of runners with these facts, which are of one lane.
core::StepLimits step_limits(const RunnerInfo& info, int lane, int num_lanes);

}  // namespace fathom::runner
